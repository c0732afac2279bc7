"""What compiling gives: a kernel with host code, reference, test and drivers, and what is known about it."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import count
from types import ModuleType
from typing import Any

import numpy as np

from ..api import Estimate, estimate, simulate
from ..api import spec as array_spec
from ..argument_checks import whole
from ..dialects.loop_text import read_file
from ..errors import UsageError
from ..hook import activate
from ..machine import Machine, machine_named
from ..tracebacks import public
from .artefacts import drivers
from .artefacts.notebook import notebook
from .artefacts.packing import Side, module_text, packing_text, sides
from .artefacts.spaces import space_text
from .emit.neuronxcc import NeuronxccPrinter
from .emit.nki import NkiPrinter
from .emit.sizes import named
from .emit.text import Printer
from .grades import Finding, Grade
from .language.ast import Cascade
from .language.spec import Spec
from .language.text import yaml_of
from .plan.knobs import RULES, Knobs
from .probes import Verdict, verdicts
from .reference import evaluate
from .roofline import Roofline, roofline, work_of
from .tree.nodes import Kernel

_numbers = count(1)


PRINTERS: dict[str, Callable[[Kernel], Printer]] = {"nki": NkiPrinter, "neuronxcc": NeuronxccPrinter}


@dataclass(frozen=True)
class CompiledEinsum:
    """A kernel, where it came from, and what is known about it.

    Args:
        spec: what was compiled.
        cascade: of it, with extents where the kernel is made for some.
        name: of the kernel's function.
        dialect: nki or neuronxcc.
        target: the chip that choices were made for.
        dtypes: of inputs and outputs.
        source: text of the kernel.
        parameters: ranks whose extents the kernel takes as arguments.
        tree: the loop tree that was printed; None for --as-written.
        findings: repairs and advice, in the order of the specification's text.
        changes: what was chosen or done in another way than given, one line each.
        alternatives: what other choices would have given, one line each.
        proofs: what was proved of the tree, one line each.
        transposed: outputs that the kernel returns the other way round; `unpack` turns them back.
        knobs: choices of its plan.
    """

    spec: Spec
    cascade: Cascade
    name: str
    dialect: str
    target: str
    dtypes: Mapping[str, str]
    source: str
    parameters: tuple[str, ...] = ()
    tree: Kernel | None = field(default=None, repr=False)
    findings: tuple[Finding, ...] = ()
    changes: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    proofs: tuple[str, ...] = ()
    transposed: frozenset[str] = frozenset()
    knobs: Knobs = RULES

    def of_tree(self, tree: Kernel, is_named: bool = True) -> CompiledEinsum:
        """The same with another loop tree, printed; with names for its numbers if `is_named`."""
        known = replace(self, parameters=tuple(tree.parameters))
        packed = {side.tensor for side in known.sides(self.inputs) if not side.is_plain}
        arguments = tuple(replace(a, is_packed=a.name in packed) for a in tree.arguments)
        plain = replace(tree, arguments=arguments)
        printed = named(plain, self.cascade).kernel if is_named else plain
        return replace(known, tree=tree, source=PRINTERS[self.dialect](printed).text())

    def __getstate__(self) -> dict[str, Any]:
        """Pickled and copied without what is made of it when it is first asked for."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def repairs(self) -> tuple[Finding, ...]:
        """What was repaired."""
        return tuple(f for f in self.findings if f.grade is Grade.REPAIR)

    @property
    def advice(self) -> tuple[Finding, ...]:
        """What is slow, or done in another way than the words say."""
        return tuple(f for f in self.findings if f.grade is Grade.ADVICE)

    @property
    def has_extents(self) -> bool:
        """Whether every rank has an extent, so that shapes are known."""
        ranks = {r for t in self.cascade.tensors.values() for r in t.ranks}
        return self.tree is not None and ranks <= set(self.cascade.sizes)

    @property
    def extents(self) -> dict[str, int]:
        """Extents that the kernel takes as arguments, as far as they were given."""
        return {r: self.cascade.sizes[r] for r in self.parameters if r in self.cascade.sizes}

    @property
    def plain_cascade(self) -> Cascade:
        """The cascade as specified, with all extents that are known."""
        return replace(self.spec.cascade, sizes=self.cascade.sizes)

    @property
    def fixed_cascade(self) -> Cascade:
        """The cascade as specified, with the extents that the kernel is made for."""
        sizes = {r: n for r, n in self.cascade.sizes.items() if r not in self.parameters}
        return replace(self.spec.cascade, sizes=sizes)

    def sides(self, tensors: Sequence[str]) -> list[Side]:
        """How inputs or outputs lie in the kernel."""
        return sides(self.spec, self.fixed_cascade, self.dtypes, tensors, self.transposed)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arrays that the kernel takes, in order."""
        return self.cascade.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the arrays that it returns, in order."""
        return self.cascade.outputs

    @cached_property
    def packing(self) -> str:
        """Text of the host functions `pack` and `unpack`."""
        fixed = self.fixed_cascade.sizes
        inputs, outputs = self.sides(self.inputs), self.sides(self.outputs)
        return packing_text(self.name, inputs, outputs, fixed, self.parameters)

    @cached_property
    def module_text(self) -> str:
        """Text of a module with the kernel and its host functions."""
        return module_text(self.source, self.packing)

    @cached_property
    def module(self) -> ModuleType:
        """The module, with the names of NKI served."""
        return module_of(self.module_text, self.name)

    @property
    @public
    def kernel(self) -> Any:
        """The decorated function."""
        return getattr(self.module, self.name)

    @public
    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Run the kernel in the simulator on plain arrays in the shapes of the declaration.

        Returns:
            An array per output in the shape of its declaration; the array itself if there is one.

        Raises:
            UsageError: if an input is missing or has another shape.
        """
        arguments = self.arguments(arrays, named)
        with activate():
            result = simulate(self.kernel)(**arguments)
        return self.module.unpack(result, arguments)

    @public
    def arguments(self, arrays: Sequence[Any] = (), named: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What the kernel takes, by name, from plain arrays.

        Raises:
            UsageError: if an input is missing or has another shape.
        """
        held = dict(zip(self.inputs, arrays)) | dict(named or {})
        missing = [n for n in self.inputs if n not in held]
        if missing or len(arrays) > len(self.inputs) or set(held) - set(self.inputs):
            raise UsageError(
                f"{self.name} takes {', '.join(self.inputs)}; got {', '.join(held) or 'nothing'}"
            )
        try:
            return dict(self.module.pack(**held))
        except ValueError as error:
            raise UsageError(f"{self.name}: {error}") from None

    @public
    def reference(self, *arrays: Any, **named: Any) -> Any:
        """What the cascade means for plain arrays, in float64."""
        held = dict(zip(self.inputs, map(np.asarray, arrays))) | named
        values = evaluate(self.plain_cascade, held)
        found = [values[name] for name in self.outputs]
        return found[0] if len(found) == 1 else tuple(found)

    @cached_property
    def probe_cascade(self) -> Cascade:
        """The cascade with extents: those given, and small ones that fit the splits where none is given."""
        return drivers.with_small_extents(self.spec, self.plain_cascade)

    @property
    def spec_text(self) -> str:
        """YAML of the cascade, with extents and types."""
        return yaml_of(self.probe_cascade, dict(self.dtypes), self.name)

    @cached_property
    def space_text(self) -> str:
        """YAML of the tile sizes that `nkilab tune` may give the kernel; "" where nothing can be turned."""
        if self.tree is None or self.spec.is_mapped:
            return ""  # a mapping decides
        return space_text(named(self.tree, self.cascade), self.machine, self.name)

    def test_text(self, module: str = "") -> str:
        """A test of the kernel in a module; for a cell below the kernel's if none is named."""
        return drivers.test_text(self.name, module, self.spec_text)

    def benchmark_text(self, module: str = "") -> str:
        """A script that times the kernel in a module."""
        return self._driven.text("benchmark", module)

    def profile_text(self, module: str = "") -> str:
        """A script that profiles the kernel in a module."""
        return self._driven.text("profile", module)

    @property
    def _driven(self) -> drivers.Driven:
        kernel = (self.name, self.probe_cascade, self.dtypes, self.dialect, self.target)
        return drivers.Driven(*kernel, self.sides(self.inputs), self.parameters)

    def notebook(self) -> str:
        """The six parts as a notebook."""
        return notebook(
            self.name, self.cascade, self.spec.text or self.spec_text, self.module_text, self.test_text(),
            self.benchmark_text(), self.profile_text(),
        )  # fmt: skip

    @public
    def verify(self, seed: int = 0) -> list[Verdict]:
        """Run the kernel on probes in the simulator and compare it with the cascade."""
        whole("seed", seed, 0)
        return list(verdicts(self, self.probe_cascade, self.dtypes, seed))

    @cached_property
    def machine(self) -> Machine:
        """The chip."""
        return machine_named(self.target)

    @cached_property
    def roofline(self) -> Roofline:
        """The least time that the cascade needs."""
        return roofline(self.cascade, self.dtypes, self.machine)

    @property
    def engine_roofline_us(self) -> float:
        """Microseconds that the busiest engine needs for the kernel's instructions, or HBM for the bytes."""
        engines = max(work_of(self.estimate).values(), default=0.0) / 1000
        return max(engines, self.roofline.times_ns["hbm"] / 1000)

    @property
    def specs(self) -> dict[str, Any]:
        """What the kernel takes, by name, with specs for arrays."""
        shapes = {
            side.tensor: array_spec(side.shape(self.cascade.sizes) or (1,), side.dtype)
            for side in self.sides(self.inputs)
        }
        return {**self.extents, **shapes}

    @cached_property
    @public
    def estimate(self) -> Estimate:
        """The predicted latency, from shapes alone."""
        with activate():
            return estimate(self.kernel, target=self.target, **self.specs)


def module_of(source: str, name: str) -> ModuleType:
    """A module made from the text of a kernel; its lines can be shown in messages."""
    filename = f"<einsum {name} {next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    module = ModuleType(name)
    module.__file__ = filename
    # parsed once, for Python and for whoever looks for loops in it
    (code, *_) = read_file(filename)[1] or [compile(source, filename, "exec", dont_inherit=True)]
    with activate():
        exec(code, module.__dict__)
    return module
