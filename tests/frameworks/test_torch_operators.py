"""Kernels as operators of PyTorch; PyTorch's own operators and float64 say what is right."""

from __future__ import annotations

import copy
import io
import os
import re
import traceback
from pathlib import Path

import pytest

import nkilab
from nkilab.errors import UsageError, UseError
from nkilab.tracebacks import is_users_file
from tests.command_line import SOURCE, call, script
from tests.frameworks.kernels import (
    appended,
    copied,
    product,
    product_backward,
    row_block,
    scaled,
    sines,
    sum_and_difference,
)

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
TYPES = ["float32", "float16", "bfloat16", "float8_e5m2", "float8_e4m3fn", "int32", "int8", "uint8"]


def compiled(function):
    return torch.compile(function, fullgraph=True, backend="aot_eager")


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def random(*shape, dtype=torch.float32, grad=False):
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + shape[0]))
    return tensor.to(dtype).requires_grad_(grad)


def message_of(caught):
    """A message without its place, which is the line in this file that calls the kernel."""
    place, _, rest = str(caught.value).partition(": ")
    file, _, line = place.partition(":")
    text = Path(__file__).read_text().splitlines()[int(line) - 1]
    assert file == Path(__file__).name
    assert "wrapped(" in text
    return rest


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_every_bit_of_a_tensor_goes_through(name, how):
    dtype = getattr(torch, name)
    bits = torch.arange(256, dtype=torch.uint8).reshape(4, 64)
    x = bits.view(dtype)
    wrapped = nkilab.torch.wrap(copied)
    out = (compiled(lambda t: wrapped(t)) if how == "compiled" else wrapped)(x)
    assert (type(out), out.dtype, out.shape) == (torch.Tensor, dtype, x.shape)
    assert torch.equal(out.view(torch.uint8), bits)


def test_vmap_runs_the_kernel_once_per_element_of_the_batch():
    wrapped = nkilab.torch.wrap(product, backward=product_backward)
    x, y = random(4, 3, 6).requires_grad_(), random(4, 6)
    batched = torch.vmap(wrapped, in_dims=(1, None))
    for function in (batched, compiled(lambda x, y: batched(x, y))):
        z = function(x, y)
        assert torch.equal(z, (x * y[:, None]).movedim(1, 0))
        (dx,) = torch.autograd.grad(z.sum(), x)
        assert torch.equal(dx, y[:, None].expand_as(x))
    with pytest.raises(UsageError) as caught:
        torch.vmap(nkilab.torch.wrap(appended, mutates=("cache",)))(x.detach(), x.detach()[:, :1])
    assert str(caught.value) == (
        "appended writes its argument cache, which torch.vmap cannot batch\n"
        "  hint: call it in a loop, or return new tensors"
    )


def test_a_copied_model_shares_its_operators():
    wrapped = nkilab.torch.wrap(scaled)
    model = torch.nn.Linear(2, 2)
    model.activation = wrapped
    assert copy.deepcopy(model).activation is wrapped
    assert copy.copy(wrapped) is wrapped


def test_a_saved_model_is_read_back_with_the_operators_of_its_kernels():
    model = torch.nn.Linear(4, 4)
    model.activation = nkilab.torch.wrap(scaled)
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    assert torch.load(stream, weights_only=False).activation is model.activation


def test_an_error_in_a_backward_pass_shows_no_frame_of_nkilab():
    wrapped = nkilab.torch.wrap(scaled, backward=lambda x, gradient: ())
    x = torch.ones(4, 4, requires_grad=True)
    with pytest.raises(UsageError, match="backward of scaled returns 0 gradients") as error:
        wrapped(x, 2.0).sum().backward()
    files = [entry.filename for entry in traceback.extract_tb(error.value.__traceback__)]
    assert files[0] == __file__
    assert all(map(is_users_file, files))


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        (
            lambda: torch.eye(4).to_sparse(),
            "argument x has layout torch.sparse_coo; kernels take dense tensors\n  hint: pass x.to_dense()",
        ),
        (
            lambda: torch.tensor(3.0),
            "argument x has shape []; a tensor has at least one element and axis\n"
            "  hint: pass a number, as x.item() is one",
        ),
    ],
)
def test_what_no_tile_holds_is_refused_at_the_line_of_the_call(argument, problem):
    wrapped = nkilab.torch.wrap(scaled)
    with pytest.raises(UseError) as caught:
        wrapped(argument())
    assert message_of(caught) == f"scaled: {problem}"
    with pytest.raises(UseError) as caught:
        wrapped(torch.ones(2, 2), time=3)
    assert message_of(caught) == (
        "scaled: the arguments do not fit the kernel: got an unexpected keyword argument 'time'\n"
        "  hint: did you mean times?"
    )


# PyTorch makes its forward mode with what it calls deprecated
@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
def test_a_tangent_is_not_dropped():
    wrapped = nkilab.torch.wrap(scaled)
    with pytest.raises(UseError) as caught:
        torch.func.jvp(lambda x: wrapped(x), (random(2, 2),), (random(2, 2),))
    assert message_of(caught) == (
        "scaled: argument x has a tangent; a kernel has no forward-mode derivative\n"
        "  hint: use reverse mode: torch.autograd.grad, with backward= of nkilab.torch.wrap"
    )


def test_a_kernel_that_is_not_wrapped_tells_of_the_gradient_that_ends_at_it(capsys):
    x = random(2, 2, grad=True)
    assert not scaled(x).requires_grad
    assert capsys.readouterr().err == (
        "nkilab: notice: scaled: x requires a gradient, and none flows through a kernel that is called "
        "as it is; use nkilab.torch.wrap(kernel, backward=...), or torch.no_grad()\n"
    )
    with torch.no_grad():
        row_block(x)
    nkilab.torch.wrap(row_block)(x)
    assert capsys.readouterr().err == ""


def test_a_constant_a_grid_and_a_structure_of_results_are_those_of_the_kernel():
    x, y = random(4, 6), random(4, 6).flip(0)
    assert torch.equal(nkilab.torch.wrap(scaled)(x, times=3.0), x * 3)
    for wrapped in (
        nkilab.torch.wrap(row_block)[2],
        nkilab.torch.wrap(row_block[2]),
        nkilab.torch.wrap(row_block, grid=(2,)),
    ):
        assert torch.equal(wrapped(x), x * 2)
    out = nkilab.torch.wrap(sum_and_difference)([x, y])
    assert list(out) == ["sum", "difference", "count"]
    assert torch.equal(out["sum"], x + y)
    assert torch.equal(out["difference"], x - y)
    assert out["count"] == 2


def test_a_tensor_that_is_not_contiguous_is_read_by_value():
    x = random(6, 4)
    wrapped = nkilab.torch.wrap(scaled)
    for strided in (x.T, x[::2], x[:, 1:3], x.T.to(torch.bfloat16)):
        assert torch.equal(wrapped(strided), strided * 2)
        assert torch.equal(compiled(lambda t: wrapped(t.abs().T))(strided), strided.abs().T * 2)


def test_a_compiled_graph_holds_one_call_of_the_operator_and_no_break():
    seen = []

    def backend(graph, examples):
        seen.append(str(graph.code))
        return graph

    wrapped = nkilab.torch.wrap(scaled)

    def model(x):
        return torch.relu(wrapped(x + 1, times=0.5)) - wrapped(x)

    x = random(4, 6)
    out = torch.compile(model, fullgraph=True, backend=backend)(x)
    assert torch.equal(out, torch.relu((x + 1) * 0.5) - x * 2)
    assert len(seen) == 1
    assert seen[0].count("scaled(") == 2


REFUSED = """\
import nkilab
import torch

with nkilab.activate():
    from tests.frameworks.kernels import copied

wrapped = nkilab.torch.wrap(copied)
print(torch.compile(lambda x: wrapped(x) + 1, fullgraph=True, backend="aot_eager")(torch.ones(129, 4)))
"""


def test_what_a_kernel_is_refused_for_while_torch_compiles_is_told_last(tmp_path):
    path = script(tmp_path, REFUSED)
    repository = str(Path(__file__).parents[2])
    done = call("run", path, env={"PYTHONPATH": os.pathsep.join([SOURCE, repository])})
    assert done.returncode == 1
    assert re.search(
        r"\n\nkernels\.py:\d+: ndarray: number of partitions 129 exceed architecture limitation of 128\n"
        r"  hint: split the partition axis into tiles of 128\n  source: .*\n  key: .*\n$",
        done.stderr,
    ), done.stderr
    # where nothing of ours prints it, the error of PyTorch has it too
    assert "TorchRuntimeError" in done.stderr
    assert done.stderr.count("kernels.py") >= 2


def test_a_kernel_that_is_not_wrapped_breaks_the_graph_and_runs():
    x = random(4, 6)
    out = torch.compile(lambda x: scaled(x + 1) * 2, backend="aot_eager")(x)
    assert torch.equal(out, (x + 1) * 2 * 2)


def test_another_shape_compiles_again_and_is_told_once(capsys):
    wrapped = nkilab.torch.wrap(row_block)
    function = torch.compile(lambda x: wrapped(x) + 1, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 4, 5):
        x = random(rows, 6)
        assert torch.equal(function(x), x * 2 + 1)
    captured = capsys.readouterr().err
    assert captured == (
        "nkilab: notice: row_block: the shape of x is dynamic; a kernel is traced for one shape, and "
        "torch.compile compiles again for another\n"
    )


def test_a_number_that_changes_from_call_to_call_compiles_again():
    wrapped = nkilab.torch.wrap(scaled)
    function = compiled(lambda x, times: wrapped(x, times=times))
    x = random(4, 6)
    for times in (1.5, 2.5, 3.5):
        assert torch.equal(function(x, times), x * times)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_the_default_backend_of_torch_compile_runs_kernels():
    # inductor compiles C++ where there is a compiler; its own CPU code rounds as eager does here
    wrapped = nkilab.torch.wrap(product, backward=product_backward)

    def loss(x, y):
        return (wrapped(x, y) * 2.0).sum()

    x, y = random(4, 6, grad=True), random(4, 6, grad=True)
    torch.compile(loss, fullgraph=True)(x, y).backward()
    assert torch.equal(x.grad, 2 * y.detach())


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_a_backward_kernel_gives_the_gradients_of_float64_autograd(how):
    wrapped = nkilab.torch.wrap(product, backward=product_backward)

    def loss(x, y):
        return (wrapped(torch.sin(x), y) ** 2).sum()

    x, y = random(4, 6, grad=True), random(4, 6, grad=True)
    (compiled(loss) if how == "compiled" else loss)(x, y).backward()
    x64, y64 = (t.detach().double().requires_grad_() for t in (x, y))
    ((torch.sin(x64) * y64) ** 2).sum().backward()
    # three float32 products: each rounds by at most 2^-24 of its value
    torch.testing.assert_close(x.grad.double(), x64.grad, rtol=4e-7, atol=1e-7)
    torch.testing.assert_close(y.grad.double(), y64.grad, rtol=4e-7, atol=1e-7)


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_a_backward_function_is_given_constants_and_zeros_for_results_nobody_used(how):
    def backward(x, dsine, dcosine):
        return dsine * torch.cos(x) - dcosine * torch.sin(x)

    wrapped = nkilab.torch.wrap(sines, backward=backward)
    times = nkilab.torch.wrap(scaled, backward=lambda x, dy, times: dy * times)

    def loss(x):
        return times(wrapped(x)[1], times=3.0).sum()

    x = random(4, 6, grad=True)
    (compiled(loss) if how == "compiled" else loss)(x).backward()
    x64 = x.detach().double().requires_grad_()
    (torch.cos(x64) * 3).sum().backward()
    torch.testing.assert_close(x.grad.double(), x64.grad, rtol=1e-6, atol=1e-6)


def test_results_are_saved_where_backward_asks_for_them():
    def backward(y, dy):
        # y = exp(x), so that dx = y dy needs no x
        return y * dy

    from tests.dialects.spellings import nki1, nl1

    @nki1.jit
    def exponential(x):
        out = nl1.ndarray(x.shape, x.dtype, buffer=nl1.shared_hbm)
        nl1.store(out, nl1.exp(nl1.load(x)))
        return out

    wrapped = nkilab.torch.wrap(exponential, backward=backward, saves=("results",))
    x = random(4, 6, grad=True)
    wrapped(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.exp(x.detach()), rtol=1e-6, atol=0)


def test_gradcheck_holds_for_a_quadratic():
    # central differences of a product are exact but for rounding, so that steps of 2^-4 in float32 do
    wrapped = nkilab.torch.wrap(product, backward=product_backward)
    x, y = random(2, 3, grad=True), random(2, 3, grad=True)
    with pytest.warns(UserWarning, match="double precision"):
        assert torch.autograd.gradcheck(wrapped, (x, y), eps=2**-4, atol=1e-5, rtol=1e-5)


def test_integers_have_no_gradient():
    def backward(x, mask, dz):
        return dz * mask

    wrapped = nkilab.torch.wrap(product, backward=backward)
    x = random(2, 3, grad=True)
    mask = torch.tensor([[1, 0, 2], [0, 1, 3]], dtype=torch.int32)
    wrapped(x, mask).sum().backward()
    assert torch.equal(x.grad, mask.float())


@pytest.mark.parametrize(
    ("kernel", "args", "options"),
    [
        (scaled, lambda: (random(4, 6),), {}),
        (product, lambda: (random(4, 6, grad=True), random(4, 6, grad=True)), {"backward": product_backward}),
        (sum_and_difference, lambda: ([random(4, 6), random(4, 6)],), {}),
        (appended, lambda: (random(4, 6), random(1, 6)), {"mutates": ("cache",)}),
    ],
    ids=["one tensor", "with gradients", "several results", "with a written argument"],
)
def test_opcheck_passes(kernel, args, options):
    outcomes = nkilab.torch.wrap(kernel, **options).opcheck(*args())
    assert outcomes == dict.fromkeys(
        ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"],
        "SUCCESS",
    )


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_a_declared_argument_is_written_in_place(how):
    wrapped = nkilab.torch.wrap(appended, mutates=("cache",))

    def step(cache, row):
        twice = wrapped(cache, row, at=2)
        return cache.sum() + twice.sum()

    cache, row = torch.zeros((6, 8)).T[:4, :], torch.ones((1, 6))
    out = (compiled(step) if how == "compiled" else step)(cache, row)
    assert out == 6 + 12
    assert torch.equal(cache, torch.tensor([[0.0], [0], [1], [0]]).expand(4, 6))


def test_a_written_argument_that_is_not_declared_is_refused():
    wrapped = nkilab.torch.wrap(appended)
    problem = "appended writes its argument cache, which PyTorch has to know beforehand"
    with pytest.raises(UsageError) as caught:
        wrapped(torch.zeros((4, 6)), torch.ones((1, 6)))
    assert str(caught.value) == f"{problem}\n  hint: wrap it with mutates=('cache',)"
    with pytest.raises(RuntimeError, match=problem):
        compiled(lambda *args: wrapped(*args))(torch.zeros((4, 6)), torch.ones((1, 6)))


def test_a_gradient_without_backward_is_refused():
    wrapped = nkilab.torch.wrap(scaled)
    out = wrapped(random(2, 3, grad=True))
    with pytest.raises(UsageError) as caught:
        out.sum().backward()
    assert str(caught.value) == (
        "scaled has no backward\n  hint: pass one: nkilab.torch.wrap(kernel, backward=kernel_or_function)"
    )


def test_a_wrong_number_of_gradients_is_refused():
    wrapped = nkilab.torch.wrap(product, backward=lambda x, y, dz: dz)
    with pytest.raises(UsageError) as caught:
        wrapped(random(2, 3, grad=True), random(2, 3)).sum().backward()
    assert str(caught.value) == (
        "backward of product returns 1 gradients; 2 arguments are arrays of floats\n"
        "  hint: return one per array of floats, in the order of the parameters"
    )


def test_what_is_no_tensor_is_refused_by_name():
    wrapped = nkilab.torch.wrap(scaled)
    with pytest.raises(UseError) as caught:
        wrapped(random(2, 3).numpy())
    assert message_of(caught) == (
        "scaled: argument x is ndarray; a wrapped kernel takes torch tensors\n"
        "  hint: pass torch.as_tensor(...) of it"
    )
    with pytest.raises(UseError) as caught:
        wrapped(torch.ones((2, 3), dtype=torch.float64))
    assert ": scaled: argument x: dtype is float64; it must be one of float32, " in str(caught.value)


def test_a_call_without_a_tensor_or_with_one_of_another_device_is_refused():
    wrapped = nkilab.torch.wrap(sum_and_difference)
    with pytest.raises(UseError) as caught:
        wrapped([])
    assert message_of(caught) == "sum_and_difference: no argument is a torch tensor"
    with torch._subclasses.FakeTensorMode():
        elsewhere = torch.empty((2, 3), device="cuda")
        with pytest.raises(UseError) as caught:
            wrapped([elsewhere, elsewhere])
    assert message_of(caught) == (
        "sum_and_difference: argument pair[0] is on cuda:0; kernels run on the CPU\n  hint: pass .cpu() of it"
    )


def test_constants_that_print_alike_and_calls_of_other_processes_are_refused():
    class Times(float):
        def __repr__(self):
            return "times"

    wrapped = nkilab.torch.wrap(scaled)
    x = random(2, 3)
    assert torch.equal(wrapped(x, times=Times(2)), x * 2)
    with pytest.raises(UsageError) as caught:
        wrapped(x, times=Times(3))
    assert str(caught.value) == (
        "scaled is called with constants that print alike: [](x, times)\n"
        "  hint: pass numbers, strings or types of nki.language"
    )
    with pytest.raises(UsageError) as caught:
        wrapped.op([x], "[](x, 7.0)")
    assert str(caught.value) == (
        "scaled was never called as [](x, 7.0) in this process\n"
        "  hint: call the wrapped kernel once before a graph that was saved elsewhere"
    )


def test_results_that_only_data_could_tell_are_told_by_a_function():
    def results(x, times):
        return nkilab.spec((x.shape[0], x.shape[1]), "float32")

    wrapped = nkilab.torch.wrap(scaled, results=results)
    x = random(4, 6)
    assert torch.equal(compiled(lambda t: wrapped(t, 3.0) + 1)(x), x * 3 + 1)


def test_tensors_without_elements_give_shapes():
    out = nkilab.torch.wrap(product)(torch.empty((4, 6), device="meta"), torch.empty((4, 6), device="meta"))
    assert (out.device.type, out.shape, out.dtype) == ("meta", (4, 6), torch.float32)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"saves": ("outputs",)}, "saves is ('outputs',); it must be a tuple of 'inputs' and 'results'"),
        ({"mutates": ("z",)}, "mutates names 'z'; the parameters of product are x, y"),
        (
            {"mutates": ("x",), "backward": product_backward},
            "product is wrapped with backward and mutates\n  hint: return new tensors where gradients flow",
        ),
        ({"backward": 3}, "backward is 3; it must be a kernel or a function"),
    ],
)
def test_arguments_of_wrap_that_make_no_sense_are_refused(options, problem):
    with pytest.raises(UsageError) as caught:
        nkilab.torch.wrap(product, **options)
    assert str(caught.value) == problem
    with pytest.raises(UsageError, match="len is no NKI kernel; decorate it"):
        nkilab.torch.wrap(len)
