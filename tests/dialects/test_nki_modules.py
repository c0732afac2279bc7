"""`nki` beside tensors and instructions: objects, schedules, collectives, environment, misspelt names."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass

import numpy as np
import pytest
from tests.dialects.spellings import marked_line, ramp, refusal, traced
from tests.dialects.spellings import nisa2 as nisa
from tests.dialects.spellings import nki2 as nki
from tests.dialects.spellings import nl2 as nl

import nkilab
from nkilab.dialects.kernel import Kernel
from nkilab.errors import RuleError, UnsupportedError, UseError
from nkilab.machine import MACHINES

with nkilab.activate():
    ncc = importlib.import_module("nki.collectives")
    nt = importlib.import_module("nki.typing")
    served = {name: importlib.import_module(f"nki.{name}") for name in ("dtype", "tensor", "meta.tensor")}


class Sizes(nl.NKIObject):
    """A class of a kernel, without a decorator."""

    rows: int
    columns: int = 6

    def __post_init__(self):
        self.total = self.rows * self.columns


@dataclass(frozen=True)
class Frozen(nl.NKIObject):
    """The same, frozen."""

    rows: int = 4


def copied(x, **names):
    """A result that equals x, with names for the transfers in and out."""
    tile = nl.ndarray(x.shape, x.dtype)
    nisa.dma_copy(dst=tile, src=x, name=names.get("first"))
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile, name=names.get("last"))
    return out


def test_an_object_takes_its_fields_by_position_and_keyword():
    sizes = Sizes(4)
    assert (sizes.rows, sizes.columns, sizes.total) == (4, 6, 24)
    assert Sizes(4, columns=2) == Sizes(columns=2, rows=4) != sizes
    assert Frozen(rows=3).rows == 3
    assert len({Frozen(), Frozen(4)}) == 1
    with pytest.raises(TypeError, match="there is no field depth; it has rows, columns"):
        Sizes(4, depth=1)
    with pytest.raises(TypeError, match="rows is given twice"):
        Sizes(4, rows=1)


def test_an_object_passes_through_a_kernel():
    @nki.jit
    def kernel(x, sizes):
        assert x.shape == (sizes.rows, sizes.columns)
        return copied(x)

    np.testing.assert_array_equal(kernel(ramp(4, 6), Sizes(4)), ramp(4, 6))


def test_the_words_of_the_decorator_are_taken():
    @nki.jit(debug_kernel=True, show_compiler_tb=True, experimental_flags="enable-mutable-parameter")
    def kernel(x):
        return copied(x)

    np.testing.assert_array_equal(kernel(ramp(4, 6)), ramp(4, 6))


def test_a_word_of_the_decorator_that_nobody_knows_is_told(capsys, monkeypatch):
    monkeypatch.setattr(nkilab.api.WORLD, "_noticed", set())
    nki.jit(named, debug_kernl=True)
    assert capsys.readouterr().err == (
        "nkilab: notice: nki.jit ignores the keyword debug_kernl; did you mean debug_kernel?\n"
    )


@nki.jit
def named(x):
    with nl.no_reorder():
        return copied(x, first="in", last="out")


def test_a_schedule_over_names_changes_no_result():
    for schedule in ([("out", "in")], [("out", ["in"])], []):
        np.testing.assert_array_equal(named.with_schedule(schedule)(ramp(4, 6)), ramp(4, 6))


def test_an_instruction_depends_on_others():
    @nki.jit
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype)
        first = nisa.dma_copy(dst=tile, src=x)
        second = nisa.tensor_copy(dst=tile, src=tile)
        assert isinstance(first, nisa.NkiInstruction)
        assert second.depends_on(first) is second
        with pytest.raises(UseError, match="a producer is of type str; it must be what a call of nki"):
            second.depends_on("in")
        return copied(x)

    assert traced(kernel, ramp(4, 6)) == ["dma_copy", "tensor_copy", "dma_copy", "dma_copy"]


def test_an_instruction_depends_on_those_around_its_loop():
    @nki.jit
    def kernel(x):
        tile = nl.ndarray(x.shape, x.dtype)
        first = nisa.dma_copy(dst=tile, src=x)
        for _ in nl.affine_range(2):
            # unrolled while tracing: it is no loop of the device
            last = nisa.tensor_copy(dst=tile, src=tile)
        nl.fori_loop(0, 2, lambda i: nisa.tensor_copy(dst=tile, src=tile).depends_on(first, last))
        return copied(x)

    np.testing.assert_array_equal(kernel(ramp(4, 6)), ramp(4, 6))


def depends_on_a_loop(x):
    tile, inside = nl.load(x), []
    nl.fori_loop(0, 2, lambda i: inside.append(nisa.tensor_copy(dst=tile, src=tile)))
    nisa.tensor_copy(dst=tile, src=tile).depends_on(inside[0])  # refused


def depends_on_a_loop_beside(x):
    tile, inside = nl.load(x), []
    register = nisa.register_alloc(1)

    def body(operand):
        inside.append(nisa.tensor_copy(dst=tile, src=tile))
        nisa.register_move(operand, 0)
        return operand

    nl.while_loop(register, body)
    for _ in nl.dynamic_range(0, 1):
        nisa.tensor_copy(dst=tile, src=tile).depends_on(inside[0])  # refused


@pytest.mark.parametrize("body", [depends_on_a_loop, depends_on_a_loop_beside])
def test_no_dependence_leaves_a_loop_of_the_device(body):
    lines, first = inspect.getsourcelines(body)
    inside = first + next(i for i, line in enumerate(lines) if "inside.append" in line)
    assert refusal(nki.jit(body), ramp(4, 6), kind=RuleError) == (
        f"HERE: depends_on: the producer, at test_nki_modules.py:{inside}, runs in a loop of the device that "
        "the consumer is not in; its semaphore would be signalled in every iteration, or never\n"
        "  hint: depend on an instruction of the same loop, or of one around it\n"
        "  source: nki.isa.NkiInstruction, depends_on"
    )


def test_a_schedule_with_a_name_that_is_none_is_refused():
    with pytest.raises(UseError, match=r"with_schedule names ou; no instruction of the kernel has this name"):
        named.with_schedule([("ou", "in")])(ramp(4, 6))


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        (["out"], "an edge is 'out'; it must be a pair: consumer, producer or list of producers"),
        ([("out", 3)], r"an edge is \('out', 3\); it must hold names of instructions, as name= gives them"),
        ([("a", "b"), ("b", "a")], "the schedule goes round in a circle: "),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(schedule, text):
    with pytest.raises(ValueError, match=text):
        named.with_schedule(schedule)


def test_a_group_of_ranks_is_checked():
    assert ncc.ReplicaGroup([[0, 1], [2, 3]]).groups == [[0, 1], [2, 3]]
    with pytest.raises(UseError, match="rank 1 stands in groups"):
        ncc.ReplicaGroup([[0, 1], [1]])
    with pytest.raises(UseError, match="ranks are whole numbers of at least 0"):
        ncc.ReplicaGroup([[-1]])


def test_rules_are_validation_errors():
    @nki.jit
    def kernel(x):
        nl.ndarray((200, 2), nl.float32)

    with pytest.raises(nisa.NkiValidationError, match="number of partitions 200"):
        kernel(ramp(4, 6))


def test_dtypes_and_arrays_of_the_host_have_modules():
    assert served["dtype"].float8_e4m3 == nl.float8_e4m3 == "float8_e4m3"
    np.testing.assert_array_equal(served["tensor"].identity(3, dtype=nl.int8), np.eye(3, dtype=np.int8))
    np.testing.assert_array_equal(served["meta.tensor"].arange(0, 6, 2), [0, 2, 4])

    @nki.jit
    def kernel(x):
        return copied(nl.shared_constant(served["tensor"].arange(0, 24).reshape(4, 6), dtype=nl.float32))

    np.testing.assert_array_equal(kernel(ramp(4, 6)), ramp(4, 6))


def test_annotations_of_parameters_have_no_effect():
    @nki.jit
    def kernel(x: nt.tensor[4, 6], y: nt.mutable_tensor, size: nki.dtype = nl.float32) -> nt.tensor:
        nisa.dma_copy(dst=y, src=nl.load(x))
        return copied(x)

    y = np.zeros((4, 6), np.float32)
    np.testing.assert_array_equal(kernel(ramp(4, 6), y), ramp(4, 6))
    np.testing.assert_array_equal(y, ramp(4, 6))


def test_the_value_of_a_tensor_is_a_copy():
    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        value = tile.sim_value
        nisa.memset(dst=tile, value=0.0)
        np.testing.assert_array_equal(value, ramp(4, 6))
        assert tile.device_value is None
        return copied(x)

    kernel(ramp(4, 6))


def test_a_copy_of_version_0_1_takes_an_offset_from_its_view():
    @nki.jit
    def kernel(x, column):
        index, data = nl.load(column), nl.load(x)
        tile = nl.ndarray((4, 1), nl.float32)
        at = data.ap([[6, 4], [1, 1]], offset=0, scalar_offset=index, indirect_dim=1)
        nisa.tensor_copy_dynamic_src(dst=tile, src=at)
        return copied_to_hbm(tile)

    result = kernel(ramp(4, 6), np.array([[2]], np.int32))
    np.testing.assert_array_equal(result, ramp(4, 6)[:, 2:3])


def copied_to_hbm(tile):
    """A result with the elements of a tile in SBUF."""
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def test_the_silicon_has_a_revision():
    @nki.jit
    def kernel(x):
        assert nisa.get_nc_sub_version() == 0
        assert nisa.get_nc_version() == nisa.nc_version.gen3
        return copied(x)

    kernel(ramp(4, 6))


def test_limits_are_those_of_the_chip():
    seen = []

    @nki.jit
    def kernel(x):
        size = nl.tile_size
        seen.append((size.sbuf_fmax_bytes, size.sbuf_fmax, size.sbuf_size_bytes, size.psum_bank_fmax,
                     size.total_available_sbuf_size))  # fmt: skip
        return copied(x)

    for target in MACHINES:
        with nkilab.api.chosen(target=target):
            kernel(ramp(4, 6))
    assert seen == [
        (180224, 45056, 128 * 192 * 1024, 512, 180224), (212984, 53246, 128 * 224 * 1024, 512, 212984),
        (245752, 61438, 128 * 256 * 1024, 512, 245752),
    ]  # fmt: skip


@pytest.mark.parametrize(("target", "banks"), [("gen2", 8), ("trn2", 7), ("gen4", 7)])
def test_transposes_on_tensor_engine_take_a_bank(monkeypatch, target, banks):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    assert nl.tile_size.psum_num_banks == 8
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    assert nl.tile_size.psum_num_banks == banks


@pytest.mark.parametrize(
    ("spelled", "generation"),
    [(name, 2) for name in ("inf2", "trn1", "trn1n", "gen2")]
    + [("gen3", 3)]
    + [(name, 4) for name in ("trn3", "trn3pre", "GEN4")],
)
def test_the_environment_names_the_chip(monkeypatch, spelled, generation):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", spelled)
    seen = []

    @nki.jit
    def kernel(x):
        seen.append(nisa.get_nc_version().value)
        return copied(x)

    kernel(ramp(4, 6))
    assert seen == [generation]


def test_wide_storage_of_narrow_types_is_refused(monkeypatch):
    for value in ("1", ""):
        monkeypatch.setenv("NKI_PRECISE_FP", value)
        np.testing.assert_array_equal(nki.simulate(named)(ramp(4, 6)), ramp(4, 6))
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    for run in (named, nki.simulate(named)):
        with pytest.raises(
            UnsupportedError, match="NKI_PRECISE_FP is 0: bfloat16 and float8 stored as float32"
        ):
            run(ramp(4, 6))
    monkeypatch.setenv("NKI_PRECISE_FP", "maybe")
    with pytest.raises(UseError, match="NKI_PRECISE_FP is 'maybe'; it must be 0 or 1"):
        named(ramp(4, 6))


def test_the_cores_of_a_launch_agree_with_the_environment(monkeypatch):
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    named(ramp(4, 6))
    named[1](ramp(4, 6))
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    with pytest.raises(RuleError, match="the kernel is launched on 1 core; NEURON_LOGICAL_NC_CONFIG is 2"):
        named[1](ramp(4, 6))
    # a simulation needs no runtime
    nki.simulate(named)(ramp(4, 6))


# nki.jit up to 0.6: without brackets one core, a mismatch is an error of the runtime; of 0.7: the variable
# says how many, and the error is NCC_EVRF066
@pytest.mark.parametrize(
    ("version", "cores", "variable"),
    [
        ("0.6", 0, "the kernel is launched on 1 core; NEURON_LOGICAL_NC_CONFIG is"),
        ("0.7", 2, ""),
        ("", 2, ""),
    ],
)
def test_the_environment_says_how_many_cores_a_kernel_without_brackets_has(
    monkeypatch, version, cores, variable
):
    seen = []

    def kernel(x):
        seen.append((nl.num_programs(0), nl.program_id(0)))
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        return out

    launched = Kernel(kernel, "nki", version)
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    if variable:
        with pytest.raises(RuleError, match=variable):
            launched(ramp(4, 6))
    else:
        np.testing.assert_array_equal(launched(ramp(4, 6)), ramp(4, 6))
    assert seen == [(2, 0), (2, 1)][:cores]


def test_a_mismatch_of_cores_has_the_sentence_of_its_version(monkeypatch):
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    with pytest.raises(RuleError) as caught:
        Kernel(lambda x: x, "nki", "0.7")[1](ramp(4, 6))
    assert "NKI kernel '<lambda>' is configured with LNC=1, but neuronx-cc is using LNC=2." in str(
        caught.value
    )
    assert str(caught.value).endswith("or set NEURON_LOGICAL_NC_CONFIG=1\n  source: NCC_EVRF066")


def tensor_attribute(x):
    x.shpe  # noqa: B018  # refused


def enum_member(x):
    nisa.oob_mode.skipp  # noqa: B018  # refused


def size_member(x):
    nl.tile_size.pmx  # noqa: B018  # refused


def region_member(x):
    nl.MemoryRegion.sbuff  # noqa: B018  # refused


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (tensor_attribute, "a tensor: a tensor has no shpe\n  hint: did you mean shape?"),
        (enum_member, "oob_mode: oob_mode has no skipp\n  hint: did you mean skip?"),
        (size_member, "tile_size: tile_size has no pmx\n  hint: did you mean pmax?"),
        (region_member, "MemoryRegion: MemoryRegion has no sbuff\n  hint: did you mean sbuf?"),
    ],
)
def test_a_member_that_is_none_tells_the_nearest(body, text):
    with pytest.raises(AttributeError) as caught:
        nki.jit(body)(ramp(4, 6))
    assert str(caught.value) == f"{marked_line(body)}: {text}"


def test_asking_whether_a_tensor_has_an_attribute_is_allowed():
    @nki.jit
    def kernel(x):
        assert hasattr(x, "shape")
        assert not hasattr(x, "no_such_thing")
        assert getattr(x, "grad", None) is None
        return copied(x)

    kernel(ramp(4, 6))
