"""Files: what is written comes back, and what is damaged is refused in words."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nkilab.disk import write_whole
from nkilab.errors import FileError
from nkilab.files import neff, ntff
from nkilab.files.container import pack, unpack
from nkilab.files.values import decoded, encoded
from nkilab.isa.activations import ACTIVATIONS
from nkilab.isa.operators import OPERATORS
from nkilab.machine import MACHINES
from nkilab.place import plan
from nkilab.timing import simulate
from nkilab.trace.program import Program
from tests.place.handmade import Kernel, rows
from tests.timing.test_clock import long_loop


def mixed_program() -> Program:
    """Every kind of thing that a program holds: attributes, values, numbers as operands, notes."""
    k = Kernel("trn2")
    a, b, c = (k.tile(128, 64, name=name) for name in ("a", "b", "ü"))
    k.load(a, rows(k.hbm(256, 64), 0, 128))
    k.call("activation", b, a, None, 1.5, None, op="exp")
    k.call("tensor_tensor", c, a, b, op="multiply")
    k.call("tensor_scalar", c, a, 2.0, None, op0="add")
    k.call("tensor_reduce", k.tile(128, 1), c, op="add", axis=1)
    k.call("memset", a, values=(np.float32(0.1),))
    k.call("memset", a, values=(True,))
    k.call("memset", a, values=(1,))
    k.matmul(k.psum(64, 64), a, b)
    k.matmul(k.psum(64, 64), a, b, accumulate=True)
    k.program.notes.append("a note")
    return k.program


def timeline_of(program: Program):
    return simulate(program, plan(program))


def test_a_program_comes_back_and_gives_the_same_timeline_bit_for_bit(tmp_path: Path) -> None:
    program = mixed_program()
    neff.write(tmp_path / "a.neff", program)
    again = neff.read(tmp_path / "a.neff")
    assert timeline_of(again) == timeline_of(program)


def test_a_program_comes_back_whole(tmp_path: Path) -> None:
    program = mixed_program()
    neff.write(tmp_path / "a.neff", program)
    again = neff.read(tmp_path / "a.neff")
    assert again.machine == program.machine
    assert again.kernel_name == program.kernel_name
    assert again.notes == program.notes
    assert again.storages == program.storages
    assert again.positions == program.positions
    for row in range(len(program)):
        assert again.form_of(row).layouts == program.form_of(row).layouts
        assert again.form_of(row).attribute_values == program.form_of(row).attribute_values
        assert again.values_of(row) == program.values_of(row)
        assert list(map(type, again.values_of(row))) == list(map(type, program.values_of(row)))
        assert again.place_of(row) == program.place_of(row)
        assert list(again.accesses(row)) == list(program.accesses(row))


def test_a_program_on_a_machine_of_ones_own_comes_back(tmp_path: Path) -> None:
    machine = replace(MACHINES["trn2"], name="mine", semaphore_ns=MACHINES["trn1"].dma_start_ns)
    k = Kernel(machine)
    k.fill(k.tile(128, 64))
    neff.write(tmp_path / "a.neff", k.program)
    assert neff.read(tmp_path / "a.neff").machine == machine


def test_equal_programs_have_equal_files() -> None:
    assert neff.packed(mixed_program()) == neff.packed(mixed_program())


def test_writing_what_was_read_gives_the_same_file(tmp_path: Path) -> None:
    neff.write(tmp_path / "a.neff", mixed_program())
    neff.write(tmp_path / "b.neff", neff.read(tmp_path / "a.neff"))
    assert (tmp_path / "a.neff").read_bytes() == (tmp_path / "b.neff").read_bytes()


def test_a_timeline_comes_back_bit_for_bit(tmp_path: Path) -> None:
    program, timeline = mixed_program(), long_loop()
    ntff.write(tmp_path / "a.ntff", program, timeline)
    trace = ntff.read(tmp_path / "a.ntff")
    assert trace.timeline == timeline
    assert trace.timeline.start_ns.dtype == timeline.start_ns.dtype
    assert trace.kernel == "made_by_hand"
    trace.check_belongs_to(mixed_program())


def test_a_timeline_of_another_program_is_told_apart(tmp_path: Path) -> None:
    k = Kernel()
    k.program.kernel_name = "other"
    k.fill(k.tile(128, 64))
    ntff.write(tmp_path / "a.ntff", mixed_program(), long_loop())
    with pytest.raises(FileError) as refused:
        ntff.read(tmp_path / "a.ntff").check_belongs_to(k.program)
    own, other = neff.digest_of(mixed_program())[:12], neff.digest_of(k.program)[:12]
    assert str(refused.value) == (
        f"{tmp_path / 'a.ntff'} is the timeline of another program: kernel made_by_hand, sha256 {own}; "
        f"the program given is kernel other, sha256 {other}\n"
        "  hint: capture it again from this NEFF"
    )


def refusal(path: Path, content: bytes, read=neff.read) -> str:
    path.write_bytes(content)
    with pytest.raises(FileError) as refused:
        read(path)
    return str(refused.value).replace(str(path), "FILE")


def test_a_vendor_neff_is_refused_politely(tmp_path: Path) -> None:
    # the vendor's is a header and a compressed archive
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz"):
        pass
    assert refusal(tmp_path / "a.neff", b"\x02" + bytes(1023) + archive.getvalue()) == (
        "FILE is no NEFF file of nkilab; what the vendor's compiler and profiler write is another format, "
        "which nkilab does not read\n"
        "  hint: write it again with nkilab"
    )


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "a.ntff", b"", ntff.read) == (
        "FILE is no NTFF file of nkilab; it is empty\n  hint: capture it again with nkilab"
    )


def test_a_truncated_file_is_refused_with_its_sizes(tmp_path: Path) -> None:
    content = neff.packed(mixed_program())
    assert refusal(tmp_path / "a.neff", content[:-5]) == (
        f"FILE is cut off: it holds {len(content) - 5} of {len(content)} bytes\n"
        "  hint: write it again with nkilab"
    )
    assert refusal(tmp_path / "a.neff", content[:20]) == (
        "FILE is cut off: it holds 20 bytes\n  hint: write it again with nkilab"
    )


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    content = bytearray(neff.packed(mixed_program()))
    content[len(content) // 2] ^= 1
    assert refusal(tmp_path / "a.neff", bytes(content)) == (
        "FILE is damaged: its content does not match its digest\n  hint: write it again with nkilab"
    )


def test_a_file_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "a.ntff", neff.packed(mixed_program()), ntff.read) == (
        "FILE is a NEFF file; a NTFF file is needed"
    )


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError) as refused:
        neff.read(tmp_path / "none.neff")
    assert str(refused.value) == f"{tmp_path / 'none.neff'} cannot be read: no such file or directory"


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError) as refused:
        neff.write(tmp_path / "none" / "a.neff", mixed_program())
    assert (
        str(refused.value) == f"{tmp_path / 'none' / 'a.neff'} cannot be written: no such file or directory"
    )


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.neff").write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(FileError, match="cannot be written: no space left on device"):
        neff.write(tmp_path / "a.neff", mixed_program())
    assert [p.name for p in tmp_path.iterdir()] == ["a.neff"]
    assert (tmp_path / "a.neff").read_bytes() == b"old"


def test_a_program_of_unknown_instructions_is_of_another_version(tmp_path: Path) -> None:
    header, arrays = unpack(neff.packed(mixed_program()), "NEFF", "FILE")
    header["forms"][0][0] = "no_such_instruction"
    del header["arrays"]
    assert refusal(tmp_path / "a.neff", pack("NEFF", header, arrays)) == (
        "FILE was written by another version of nkilab: KeyError 'no_such_instruction'\n"
        "  hint: write it again with nkilab"
    )


PACKED = neff.packed(mixed_program())


@given(st.integers(0, len(PACKED) - 1))
def test_no_truncation_is_read(length: int) -> None:
    with pytest.raises(FileError):
        neff.unpacked(PACKED[:length], "FILE")


@given(st.lists(st.tuples(st.integers(0, len(PACKED) - 1), st.integers(1, 255)), min_size=1, max_size=4))
def test_no_damage_is_read(changes: list[tuple[int, int]]) -> None:
    content = bytearray(PACKED)
    for place, difference in changes:
        content[place] ^= difference
    if bytes(content) == PACKED:
        return
    with pytest.raises(FileError):
        neff.unpacked(bytes(content), "FILE")


@given(st.binary(max_size=300), st.booleans())
def test_no_foreign_bytes_are_read(content: bytes, with_our_magic: bool) -> None:
    with pytest.raises(FileError):
        neff.unpacked((PACKED[:8] if with_our_magic else b"") + content, "FILE")


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(),
    st.floats(width=32, allow_nan=False).map(np.float32), st.integers(-128, 127).map(np.int8),
    st.floats(width=16, allow_nan=False).map(ml_dtypes.bfloat16),
    st.sampled_from(list(OPERATORS.values())), st.sampled_from(list(ACTIVATIONS.values())),
)  # fmt: skip


@given(st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8))
def test_values_come_back_with_their_type(value: object) -> None:
    again = decoded(encoded(value))
    assert type(again) is type(value)
    assert again == value
    assert repr(again) == repr(value)


def test_a_value_without_a_form_in_files_is_refused() -> None:
    with pytest.raises(FileError) as refused:
        encoded({1})
    assert str(refused.value) == "a value of type set has no form in files: {1}"


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs /dev/full")
def test_a_device_is_written_to_and_not_replaced() -> None:
    with pytest.raises(FileError, match="/dev/full cannot be written: no space left on device"):
        write_whole("/dev/full", b"bytes")
    assert Path("/dev/full").is_char_device()


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
def test_a_link_stays_and_its_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far" / "file")
    for content in (b"first", b"second"):
        write_whole(tmp_path / "near", content)
        assert (tmp_path / "near").is_symlink()
        assert (tmp_path / "far" / "file").read_bytes() == content
    assert [one.name for one in (tmp_path / "far").iterdir()] == ["file"]
