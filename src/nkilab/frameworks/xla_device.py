"""The device that host scripts call `xla`: its tensors say that they lie there, and compute on the CPU.

They are tensors of the CPU with a class of their own, which PyTorch gives to whatever is computed from them.
Functions that make tensors on the device come here by PyTorch's table of devices, in which nothing else
stands under `xla` where torch_xla is not installed.
"""

from __future__ import annotations

from functools import cache, partial, wraps
from importlib.util import find_spec
from typing import Any

from .._lazy import torch
from ..errors import UsageError

TYPE, NUMBER = "xla", 1
# Functions of PyTorch that make a tensor by resizing an empty one.
_RESIZING = (
    "arange", "arange.start", "arange.start_step", "eye", "eye.m", "linspace", "logspace", "range",
    "range.step", "randperm", "randperm.generator",
)  # fmt: skip


def device() -> Any:
    """The device, ready for use: `xla:1`, as torch_xla calls the first one."""
    _tensor_class()
    return torch().device(TYPE, NUMBER)


def make_known() -> None:
    """Let PyTorch know the device by name, where PyTorch is installed."""
    if find_spec("torch") is not None:
        _tensor_class()


class AtDevice:
    """What a tensor of the CPU needs that says it lies at the device; stands in front of PyTorch's class.

    Only Python sees the device: autograd ends the process where a tensor lies at one that PyTorch was built
    without.
    """

    is_xla, is_cpu = True, False
    as_subclass: Any
    dtype: Any
    requires_grad: bool
    detach: Any

    @property
    def device(self) -> Any:
        """Where it lies."""
        return torch().device(TYPE, NUMBER)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """As PyTorch's; the only other device is the CPU."""
        module = torch()
        asked, dtype, *_ = module._C._nn._parse_to(*args, **kwargs)
        if asked is not None and asked.type not in (TYPE, "cpu"):
            raise UsageError(f"tensors go to {asked}; nkilab has cpu and {TYPE}")
        leaves = asked is not None and asked.type == "cpu"
        plain = self.in_place()
        moved = plain.to(dtype or self.dtype, copy=leaves or kwargs.get("copy", False))
        return moved if leaves else self if moved is plain else _at_device(moved)

    def in_place(self) -> Any:
        """The tensor of the CPU that it is."""
        return self.as_subclass(torch().Tensor)

    def cpu(self, *args: Any, **kwargs: Any) -> Any:
        """A copy on the CPU."""
        return self.to("cpu")

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Refused, as for every tensor that does not lie on the CPU."""
        raise TypeError(f"the tensor lies at {self.device}: copy it to the host with Tensor.cpu() first")

    __array__ = numpy

    @property
    def grad(self) -> Any:
        """The gradient, at the device too."""
        gradient = torch().Tensor.grad.__get__(self)
        return gradient if gradient is None else _at_device(gradient)

    @grad.setter
    def grad(self, new_gradient: Any) -> None:
        torch().Tensor.grad.__set__(self, new_gradient)

    def __deepcopy__(self, memo: Any) -> Any:
        return memo.setdefault(id(self), self.detach().clone().requires_grad_(self.requires_grad))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _at_device, (self.cpu(),)

    # by these PyTorch knows that it cannot put this tensor into the place of another, as Module.to would
    def __tensor_flatten__(self) -> Any:
        return [], self.in_place()

    @staticmethod
    def __tensor_unflatten__(parts: Any, plain: Any, shape: Any, strides: Any) -> Any:
        return _at_device(plain)


def _at_device(plain: Any) -> Any:
    """A tensor of the CPU as one at the device, with the same elements."""
    return plain.as_subclass(_tensor_class())


def _wrapped_result(func: Any, *args: Any, **kwargs: Any) -> Any:
    """What a function of PyTorch makes for the device."""
    module = torch()
    own = {**kwargs, "device": module.device("cpu")} if "device" in kwargs else kwargs
    return module.utils._pytree.tree_map_only(module.Tensor, _at_device, func(*args, **own))


def _number_the_device(module: Any) -> None:
    """Have `Tensor.to` take `xla` for the first one: PyTorch asks a library of the device which it is."""
    plain = module.Tensor.to

    @wraps(plain)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        asked = kwargs.get("device", args[0] if args else None)
        if isinstance(asked, str | module.device) and str(asked) == TYPE:
            numbered = module.device(TYPE, NUMBER)
            if "device" in kwargs:
                kwargs["device"] = numbered
            else:
                args = (numbered, *args[1:])
        return plain(self, *args, **kwargs)

    module.Tensor.to = to


@cache
def _tensor_class() -> Any:
    """The class of its tensors; made, and known to PyTorch, when a script imports torch_xla or asks."""
    module = torch()
    library = module.library.Library
    everything, some = library("_", "IMPL", "XLA"), library("aten", "IMPL", "XLA")
    everything.fallback(_wrapped_result)
    for name in _RESIZING:
        packet, _, overload = name.partition(".")
        some.impl(
            name, partial(_wrapped_result, getattr(getattr(module.ops.aten, packet), overload or "default"))
        )
    _number_the_device(module)
    # PyTorch prints the name of the class, and forgets what is registered with what it does not hold
    return type("tensor", (AtDevice, module.Tensor), {"registered": (everything, some)})
