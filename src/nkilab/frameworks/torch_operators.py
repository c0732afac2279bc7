"""Kernels as operators of PyTorch, which torch.compile and autograd know."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from .._lazy import torch
from ..arrays import framework_of, on_host, torch_dtype
from ..dialects.annotations import is_mutable
from ..dialects.kernel import Kernel
from ..errors import UsageError, UseError
from ..tiles.dtypes import as_dtype
from ..trace.session import ask
from ..trace.source import place_of, user_frame
from ..tracebacks import public
from .kernel_calls import Backward, Call, WrappedKernel, checked, filled, run, specs_of, taken_apart

NAMESPACE = "nkilab"
_EXAMPLE = "nkilab.torch.wrap(kernel, backward=kernel_or_function)"
# operators of this process; PyTorch knows an operator by its name until the process ends
_NAMES: set[str] = set()
# operators that were pickled or read back, by a word that is theirs in every process
_PICKLED: dict[str, TorchKernel] = {}


class TorchKernel(WrappedKernel):
    """A kernel that takes and returns PyTorch tensors, inside torch.compile and autograd too.

    Args:
        kernel: with or without a grid.
        backward: kernel or function that makes gradients; None for none.
        saves: what `backward` is given before the gradients: "inputs", "results" or both.
        mutates: parameters whose tensors the kernel writes; the operator returns their new values first,
            which are copied to the tensors.
        results: a function from the arguments to specs of the results; None to trace the kernel for them.
    """

    def __init__(
        self, kernel: Kernel, backward: Any, saves: Sequence[str], mutates: Sequence[str],
        results: Callable[..., Any] | None,
    ) -> None:  # fmt: skip
        if isinstance(backward, Kernel):
            backward = TorchKernel(backward, None, (), (), None)
        super().__init__(kernel, Backward(kernel.name, backward, tuple(saves), _EXAMPLE), results)
        self._mutates = tuple(mutates)
        self._calls: dict[str, Call] = {}
        self._returned: dict[str, Any] = {}
        self._token = uuid4().hex
        self.op = self._registered()
        # dynamo puts the call into its graph as it is, and asks it for shapes with fake tensors
        self._call = torch().compiler.allow_in_graph(self._operated())

    def _launched(self, *call: Any) -> Any:
        return self._call(*call)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it is made of; all that one process reads of it share one operator."""
        state = (self._backward.function, self._backward.saves, self._mutates, self._outlines.reuse)
        _PICKLED[self._token] = self
        return _restored, (self._token, self.kernel, *state)

    def __repr__(self) -> str:
        return f"<torch operator {self.op._qualname} of nki kernel {self.kernel.name}>"

    @public
    def opcheck(self, *args: Any, **kwargs: Any) -> dict[str, str]:
        """What torch.library.opcheck finds of a call: per test "SUCCESS"; raises where one fails."""
        call, tensors = self._taken_apart(self.kernel.grid, args, kwargs)
        outcomes: dict[str, str] = torch().library.opcheck(self.op, (tensors, str(call)))
        return outcomes

    def _operated(self) -> Callable[..., Any]:
        def operated(grid: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            call, tensors = self._taken_apart(grid, args, kwargs)
            results_of_op = self.op(tensors, str(call))
            written = [t for slot, t in zip(call.slots, tensors, strict=True) if self._is_mutated(slot.name)]
            for tensor, new in zip(written, results_of_op, strict=False):
                tensor.copy_(new)
            results = results_of_op[len(written) :]
            return filled(self._returned[str(call)], lambda slot: results[slot.number])

        operated.__name__ = self.kernel.name
        return operated

    def _taken_apart(
        self, grid: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Call, list[Any]]:
        # numbers that change from call to call are symbols while torch compiles
        call, tensors = taken_apart(self.kernel, grid, _plain(args), _plain(kwargs))
        _check_tensors(self.kernel, call, tensors)
        if self._calls.setdefault(str(call), call) != call:
            raise UsageError(
                f"{self.kernel.name} is called with constants that print alike: {call}",
                hint="pass numbers, strings or types of nki.language",
            )
        return call, tensors

    def _is_mutated(self, name: str) -> bool:
        return name.partition("[")[0] in self._mutates

    def _registered(self) -> Any:
        """The operator, known to PyTorch from here on; it changes none of its operands."""
        schema = "(Tensor[] tensors, str call) -> Tensor[]"
        name = _unused_name(self.kernel.name)
        op = torch().library.custom_op(name, self._compute, mutates_args=(), schema=schema)
        op.register_fake(self._fake)
        op.register_autograd(self._gradients, setup_context=self._keep)
        op.register_vmap(self._one_by_one)
        return op

    def _known(self, text: str) -> Call:
        """The call that an operator is given by its text."""
        if text not in self._calls:
            raise UsageError(
                f"{self.kernel.name} was never called as {text} in this process",
                hint="call the wrapped kernel once before a graph that was saved elsewhere",
            )
        return self._calls[text]

    @public
    def _compute(self, tensors: Sequence[Any], text: str) -> list[Any]:
        """Run the kernel on data; returns what mutated parameters hold then, and the results."""
        call = self._known(text)
        self._check_annotated(call)
        is_mutated = [self._is_mutated(slot.name) for slot in call.slots]
        own = [_copy(t) if copies else t for t, copies in zip(tensors, is_mutated, strict=True)]
        versions = [t._version for t in own]
        self._returned[text], results = run(self.kernel, call, own)
        for slot, copies, tensor, version in zip(call.slots, is_mutated, own, versions, strict=True):
            if not copies and tensor._version != version:
                raise self._undeclared(slot.name)
        places = {t.untyped_storage().data_ptr() for t in own}
        apart = [_copy(r) if r.untyped_storage().data_ptr() in places else r for r in results]
        return [t for t, copies in zip(own, is_mutated, strict=True) if copies] + apart

    def _check_annotated(self, call: Call) -> None:
        for slot in call.slots:
            parameter = slot.name.partition("[")[0]
            if is_mutable(self.kernel.function, parameter) and not self._is_mutated(parameter):
                raise self._undeclared(parameter)

    def _undeclared(self, name: str) -> UsageError:
        return UsageError(
            f"{self.kernel.name} writes its argument {name}, which PyTorch has to know beforehand",
            hint=f"wrap it with mutates=({name.partition('[')[0]!r},)",
        )

    @public
    def _fake(self, tensors: Sequence[Any], text: str) -> list[Any]:
        """Tensors of the shapes that `_compute` returns, without elements."""
        call = self._known(text)
        self._check_annotated(call)
        self._tell_dynamic(call, tensors)
        outline = self._outlines.of(call, specs_of(self.kernel, call, tensors))
        for name in outline.changed:
            if not self._is_mutated(name):
                raise self._undeclared(name)
        self._returned[text] = outline.results
        device, empty = tensors[0].device, torch().empty
        written = [t for slot, t in zip(call.slots, tensors, strict=True) if self._is_mutated(slot.name)]
        kept = [(tuple(map(int, t.shape)), t.dtype) for t in written]
        kept += [(spec.shape, torch_dtype(as_dtype(spec.dtype))) for spec in outline.specs]
        return [empty(shape, dtype=dtype, device=device) for shape, dtype in kept]

    @public
    def _one_by_one(
        self, batch: Any, axes: tuple[list[int | None], None], tensors: Sequence[Any], text: str
    ) -> tuple[list[Any], list[int]]:
        """What torch.vmap makes of a call: the operator per element of the batch."""
        if self._mutates:
            raise UsageError(
                f"{self.kernel.name} writes its argument {self._mutates[0]}, which torch.vmap cannot batch",
                hint="call it in a loop, or return new tensors",
            )
        each = [
            self.op([t if axis is None else t.select(axis, i) for t, axis in zip(tensors, axes[0])], text)
            for i in range(batch.batch_size)
        ]
        stacked = [torch().stack(parts) for parts in zip(*each, strict=True)]
        return stacked, [0] * len(stacked)

    def _tell_dynamic(self, call: Call, tensors: Sequence[Any]) -> None:
        """Tell that a symbolic extent is held at its present size."""
        for slot, tensor in zip(call.slots, tensors, strict=True):
            if any(isinstance(extent, torch().SymInt) for extent in tensor.shape):
                ask().notice(
                    f"{self.kernel.name}: the shape of {slot.name} is dynamic; a kernel is traced for one "
                    "shape, and torch.compile compiles again for another"
                )

    def _keep(self, ctx: Any, inputs: tuple[Any, ...], output: Sequence[Any]) -> None:
        """Keep for the backward pass what it is given."""
        tensors, ctx.call = inputs
        ctx.floats = [t.is_floating_point() for t in tensors]
        ctx.results = [(tuple(r.shape), r.dtype, r.device) for r in output]
        ctx.save_for_backward(*self._backward.kept(tensors, output))

    @public
    def _gradients(self, ctx: Any, gradients: Sequence[Any]) -> tuple[Any, None]:
        """The gradients of the tensors of a call, None for those that are no floats."""
        contiguous = [
            torch().zeros(shape, dtype=dtype, device=device) if gradient is None else gradient
            for gradient, (shape, dtype, device) in zip(gradients, ctx.results, strict=True)
            if dtype.is_floating_point
        ]
        constants = self._calls[ctx.call].constants
        return self._backward(ctx.saved_tensors, contiguous, constants, ctx.floats), None


def _restored(token: str, *state: Any) -> TorchKernel:
    if token not in _PICKLED:
        _PICKLED[token] = TorchKernel(*state)
        _PICKLED[token]._token = token
    return _PICKLED[token]


def _copy(tensor: Any) -> Any:
    return tensor.detach().clone(memory_format=torch().contiguous_format)


def _plain(value: Any) -> Any:
    """`value` with symbols of torch.compile as the numbers that they stand for."""
    module = torch()
    if isinstance(value, module.SymInt):
        return int(value)
    if isinstance(value, module.SymFloat):
        return float(value)
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "_make"):
        return type(value)(_plain(v) for v in value)
    return value


def _check_tensors(kernel: Kernel, call: Call, tensors: list[Any]) -> None:
    """Refuse what is no tensor on the CPU."""
    for slot, tensor in zip(call.slots, tensors, strict=True):
        kind = framework_of(tensor)
        if kind != "torch":
            raise UseError(
                f"argument {slot.name} is {type(tensor).__name__}; a wrapped kernel takes torch tensors",
                hint="pass torch.as_tensor(...) of it",
            ).located(place_of(user_frame()), kernel.name)
        if tensor.device.type not in ("cpu", "meta"):
            raise UseError(
                f"argument {slot.name} is on {tensor.device}; kernels run on the CPU",
                hint="pass .cpu() of it",
            ).located(place_of(user_frame()), kernel.name)
        _check_layout_and_mode(kernel, slot.name, tensor)
    if not tensors:
        raise UseError("no argument is a torch tensor").located(place_of(user_frame()), kernel.name)


def _check_layout_and_mode(kernel: Kernel, name: str, tensor: Any) -> None:
    """Refuse tensors that are not dense, and tangents, which PyTorch would drop without a word."""
    try:
        on_host(tensor, name)
        if torch("autograd.forward_ad").unpack_dual(tensor).tangent is not None:
            raise UseError(
                f"argument {name} has a tangent; a kernel has no forward-mode derivative",
                hint="use reverse mode: torch.autograd.grad, with backward= of nkilab.torch.wrap",
            )
    except UseError as error:
        raise error.located(place_of(user_frame()), kernel.name) from None


def _unused_name(kernel: str) -> str:
    """A name for an operator that none has in this process."""
    base = f"{NAMESPACE}::{re.sub(r'[^0-9A-Za-z_]', '_', kernel)}"
    name, number = base, 2
    while name in _NAMES:
        name, number = f"{base}_{number}", number + 1
    _NAMES.add(name)
    return name


@public
def wrap(
    kernel: Any, backward: Any = None, *, saves: Sequence[str] = ("inputs",), mutates: Sequence[str] = (),
    results: Callable[..., Any] | None = None, grid: Any = (),
) -> TorchKernel:  # fmt: skip
    """Make a kernel an operator of PyTorch: on tensors, inside torch.compile, with autograd.

    Args:
        kernel: decorated by nki.jit of either spelling, with or without a grid.
        backward: kernel or function that makes gradients. It is called with what is saved, then with the
            gradients of the results that are floats, and with the constants of the call that it has
            parameters for; it returns a gradient per tensor of floats, in the order of the parameters.
        saves: what `backward` is given before the gradients: "inputs", "results", or both, in this order.
        mutates: parameters whose tensors the kernel writes.
        results: a function from the arguments, as specs, to specs of the results, for kernels whose
            results only data could tell; the kernel is traced without data if it is not given.
        grid: program instances along each axis; that of the kernel if not given.

    Raises:
        UsageError: if `kernel` is none, or the arguments contradict each other.
    """
    checked_kernel = checked(kernel, backward, saves, grid)
    parameters = checked_kernel.signature.parameters
    for name in mutates:
        if name not in parameters:
            raise UsageError(
                f"mutates names {name!r}; the parameters of {checked_kernel.name} are {', '.join(parameters)}"
            )
    if mutates and backward is not None:
        raise UsageError(
            f"{checked_kernel.name} is wrapped with backward and mutates",
            hint="return new tensors where gradients flow",
        )
    return TorchKernel(checked_kernel, backward, saves, mutates, results)
