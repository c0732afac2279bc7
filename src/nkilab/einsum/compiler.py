"""Compiling: a specification becomes a kernel, and all that goes with it."""

from __future__ import annotations

import builtins
import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from types import ModuleType
from typing import Any

import numpy as np

from ..api import Estimate, estimate, simulate
from ..api import spec as array_spec
from ..errors import UsageError
from ..hook import activate
from ..machine import Machine, machine_named
from ..tiles.dtypes import as_dtype
from .artefacts import drivers
from .artefacts.notebook import notebook
from .emit.neuronxcc import NeuronxccPrinter
from .emit.nki import NkiPrinter
from .grades import ADVICE, REPAIR, judged
from .language.ast import Cascade
from .language.extents import sized, sizes_of_arrays
from .language.forms import spec_from
from .language.spec import Spec
from .language.text import yaml_of
from .mapped.build import build
from .mapped.checks import findings
from .plan.lower import lower
from .probes import Verdict, verdicts
from .prove import prove
from .reference import evaluate
from .roofline import Roofline, roofline, work_of
from .search import searched, with_axes_swapped
from .tree.nodes import Kernel
from .written.generator import as_written as text_as_written

PRINTERS = {"nki": NkiPrinter, "neuronxcc": NeuronxccPrinter}
_numbers = count(1)
# `compile` of this module hides Python's own
python_code = builtins.compile


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
        source: text of the module.
        tree: the loop tree that was printed; None for --as-written.
        notes: repairs, changes and choices, one line each.
        advice: what makes it slow, one line each.
        alternatives: what other choices would have given, one line each.
        proofs: what was proved of the tree, one line each.
        transposed: outputs that the kernel returns the other way round; calls turn them back.
    """

    spec: Spec
    cascade: Cascade
    name: str
    dialect: str
    target: str
    dtypes: Mapping[str, str]
    source: str
    tree: Kernel | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()
    proofs: tuple[str, ...] = ()
    transposed: frozenset[str] = frozenset()

    @property
    def has_extents(self) -> bool:
        """Whether every rank has an extent, so that shapes are known."""
        ranks = {r for t in self.cascade.tensors.values() for r in t.ranks}
        return self.tree is not None and ranks <= set(self.cascade.sizes)

    @property
    def parameters(self) -> dict[str, int]:
        """Extents that the kernel takes as arguments, with the values that it was compiled for."""
        names = self.tree.parameters if self.tree is not None else ()
        return {name: self.cascade.sizes[name] for name in names if name in self.cascade.sizes}

    @cached_property
    def kernel(self) -> Any:
        """The decorated function."""
        return getattr(module_of(self.source, self.name), self.name)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arrays that the kernel takes, in order."""
        return self.cascade.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the arrays that it returns, in order."""
        return self.cascade.outputs

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Run the kernel in the simulator on plain arrays in the shapes of the declaration.

        Returns:
            An array per output in the shape of its declaration; the array itself if there is one.

        Raises:
            UsageError: if an input is missing or has another shape.
        """
        return self.turned_back(self.raw(*arrays, **named))

    def raw(self, *arrays: Any, **named: Any) -> list[np.ndarray]:
        """What the kernel itself returns, in the shapes of its cascade."""
        given = self.bound(arrays, named)
        with activate():
            result = simulate(self.kernel)(*given.values(), **self.parameters)
        results = result if isinstance(result, tuple | list) else (result,)
        return [
            np.asarray(r).reshape(self.cascade.shape(n)) for n, r in zip(self.outputs, results, strict=True)
        ]

    def turned_back(self, results: Sequence[np.ndarray]) -> Any:
        """Results as the specification declares them."""
        found = [r.T if n in self.transposed else r for n, r in zip(self.outputs, results, strict=True)]
        return found[0] if len(found) == 1 else tuple(found)

    def bound(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Inputs by name, in their types and declared shapes."""
        held = dict(zip(self.inputs, arrays)) | dict(named)
        missing = [n for n in self.inputs if n not in held]
        if missing or len(arrays) > len(self.inputs) or set(held) - set(self.inputs):
            raise UsageError(
                f"{self.name} takes {', '.join(self.inputs)}; got {', '.join(held) or 'nothing'}"
            )
        found = {}
        for name in self.inputs:
            array = np.asarray(held[name])
            if array.shape != self.cascade.shape(name):
                raise UsageError(
                    f"{name} has the shape {list(array.shape)}; "
                    f"the kernel is made for {list(self.cascade.shape(name))}"
                )
            found[name] = array.astype(as_dtype(self.dtypes[name]).storage)
        return found

    def reference(self, *arrays: Any, **named: Any) -> Any:
        """What the cascade means for plain arrays, in float64."""
        values = evaluate(self.cascade, self.bound(arrays, named))
        return self.turned_back([values[name] for name in self.outputs])

    @property
    def spec_text(self) -> str:
        """YAML with all extents and types."""
        return yaml_of(self.cascade, dict(self.dtypes), self.name)

    def test_text(self, module: str) -> str:
        """A test script for the kernel in a module."""
        return drivers.test_text(self.name, module, self.spec_text)

    def benchmark_text(self, module: str) -> str:
        """A script that times the kernel in a module."""
        return drivers.benchmark_text(self.name, module, self.cascade, self.dtypes, self.dialect)

    def profile_text(self, module: str) -> str:
        """A script that profiles the kernel in a module."""
        return drivers.profile_text(self.name, module, self.cascade, self.dtypes, self.dialect)

    def notebook(self) -> str:
        """The six parts as a notebook."""
        lines = "\n".join(f"- `{e}`" for e in self.cascade.einsums)
        return notebook(
            f"`{self.name}` computes {', '.join(self.outputs)} from {', '.join(self.inputs)}:\n\n{lines}",
            self.spec_text,
            self.source,
            self.test_text(self.name),
            self.benchmark_text(self.name),
            self.profile_text(self.name),
            self.name,
        )

    def verify(self, seed: int = 0) -> list[Verdict]:
        """Run the kernel on probes in the simulator and compare it with the cascade."""
        return list(verdicts(self.raw, self.cascade, self.dtypes, seed))

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

    @cached_property
    def estimate(self) -> Estimate:
        """The predicted latency, from shapes alone."""
        arguments = [array_spec(self.cascade.shape(n) or (1,), self.dtypes[n]) for n in self.inputs]
        with activate():
            return estimate(self.kernel, *arguments, target=self.target, **self.parameters)


def module_of(source: str, name: str) -> ModuleType:
    """A module made from the text of a kernel; its lines can be shown in messages."""
    filename = f"<einsum {name} {next(_numbers)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    module = ModuleType(name)
    module.__file__ = filename
    with activate():
        exec(python_code(source, filename, "exec"), module.__dict__)
    return module


def compile(
    spec: Any,
    *,
    sizes: Mapping[str, int] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dtypes: Mapping[str, Any] | str | None = None,
    scalars: Mapping[str, float] | None = None,
    outputs: tuple[str, ...] = (),
    dialect: str = "nki",
    as_written: bool = False,
    strict: bool = False,
    search: float = 0.0,
    target: str = "trn2",
    name: str = "",
) -> CompiledEinsum:
    """Compile a specification into a kernel.

    Args:
        spec: see `language.forms.spec_from`.
        sizes: extents of ranks that the specification leaves open.
        shapes: of tensors, instead of or beside `sizes`.
        dtypes: of inputs and outputs by name, or one for all; float32, or that of the inputs, if not given.
        scalars, outputs: for expressions.
        dialect: nki or neuronxcc.
        as_written: print what the published generator prints, faults and all.
        strict: refuse what is otherwise repaired.
        search: seconds to spend on other choices.
        target: chip to choose for.
        name: of the kernel.

    Raises:
        SpecError: if the specification has no meaning.
        UnsupportedError: if no nest covers an Einsum.
    """
    if dialect not in PRINTERS:
        raise UsageError(f"dialect is {dialect}; it is one of {', '.join(PRINTERS)}")
    held = spec_from(spec, scalars, outputs)
    name = name or held.kernel_name or "kernel"
    if as_written:
        return _as_written(held, name, target)
    if held.is_mapped:
        return _mapped(held, name, dialect, target, strict, dict(sizes or {}))
    extents = sizes_of_arrays(held.cascade, shapes or {}) | dict(sizes or {})
    cascade = sized(held.cascade, extents)
    types = types_of(cascade, held, dtypes)
    return _lowered(held, cascade, types, name, dialect, target, search)


def _lowered(
    spec: Spec, cascade: Cascade, types: dict[str, str], name: str, dialect: str, target: str, search: float
) -> CompiledEinsum:
    """The kernel of a cascade without a mapping: by the rules, or the best that a search finds."""
    machine, title = machine_named(target), title_of(cascade)

    def compiled(kernel: Kernel, choices: tuple[str, ...], tried: tuple[str, ...] = ()) -> CompiledEinsum:
        proofs = tuple(prove(kernel, machine))
        source = PRINTERS[dialect](kernel).text()
        return CompiledEinsum(
            spec, cascade, name, dialect, target, types, source, kernel, choices, (), tried, proofs
        )

    if search > 0:
        found = searched(
            cascade, types, machine, name, title, search, lambda k: compiled(k, ()).estimate.latency_us
        )
        notes = (*found.ctx.choices, f"searched {len(found.tried)} kernels; taken: {found.knobs}")
        return compiled(found.kernel, notes, found.tried)
    kernel, ctx = lower(cascade, types, machine, name, title)
    result = compiled(kernel, tuple(ctx.choices))
    for output in sorted(spec.any_layout & set(cascade.outputs)):
        result = _cheaper_layout(result, output)
    return result


def _cheaper_layout(compiled: CompiledEinsum, output: str) -> CompiledEinsum:
    """The kernel, or the one that stores an output of two axes the other way round, whichever is faster."""
    if len(compiled.cascade.tensors[output].ranks) != 2:
        return compiled
    turned = with_axes_swapped(compiled.cascade, output)
    spec = replace(compiled.spec, any_layout=frozenset())
    other = _lowered(
        spec, turned, dict(compiled.dtypes), compiled.name, compiled.dialect, compiled.target, 0.0
    )
    first, second = compiled.estimate.latency_us, other.estimate.latency_us
    told = f"{output} as declared {first:.1f} us, transposed {second:.1f} us"
    if second >= first:
        return replace(compiled, notes=(*compiled.notes, f"any-layout: {told}; taken: as declared"))
    notes = (*compiled.notes, f"any-layout: {told}; taken: transposed, and the host transposes back")
    return replace(other, notes=notes, transposed=compiled.transposed | {output})


def _mapped(
    spec: Spec, name: str, dialect: str, target: str, strict: bool, sizes: dict[str, int]
) -> CompiledEinsum:
    machine = machine_named(target)
    found = judged(findings(spec, machine), strict)
    kernel, changes = build(spec, machine, name, title_of(spec.cascade))
    notes = [str(f) for f in found if f.fault.grade == REPAIR] + list(dict.fromkeys(changes))
    advice = [f"{f.place}: {f.text}; {f.change}" for f in found if f.fault.grade == ADVICE]
    cascade = replace(spec.cascade, sizes={**sizes, **spec.cascade.sizes})
    types = {t: spec.dtypes.get(t, "float32") for t in cascade.tensors}
    return CompiledEinsum(
        spec,
        cascade,
        name,
        dialect,
        target,
        types,
        PRINTERS[dialect](kernel).text(),
        kernel,
        tuple(notes),
        tuple(advice),
    )


def _as_written(spec: Spec, name: str, target: str) -> CompiledEinsum:
    text = text_as_written(replace(spec, kernel_name=name))
    types = {t: spec.dtypes.get(t, "float32") for t in spec.cascade.tensors}
    return CompiledEinsum(spec, spec.cascade, name, "neuronxcc", target, types, text)


def verify(kernel: Any, spec: Any, seed: int = 0) -> list[Verdict]:
    """Run a kernel on probes and compare it with the cascade of a specification that has all extents.

    Args:
        kernel: callable with plain arrays.
        spec: see `compile`.
        seed: of the probes.
    """
    held = spec_from(spec)
    cascade = sized(held.cascade)
    return list(verdicts(kernel, cascade, types_of(cascade, held, None), seed))


def types_of(cascade: Cascade, spec: Spec, given: Mapping[str, Any] | str | None) -> dict[str, str]:
    """The type of every input and output: given, of the specification, or that of the inputs."""
    by_name = given if isinstance(given, Mapping) else {}
    found: dict[str, str] = {}
    for tensor in cascade.inputs:
        gathered = any(
            g.access.tensor == tensor for e in cascade.einsums for a in e.accesses for g in a.gathers
        )
        default = "int32" if gathered else given if isinstance(given, str) else "float32"
        found[tensor] = as_dtype(by_name.get(tensor) or spec.dtypes.get(tensor) or default).name
    floats = [d for d in found.values() if not d.lstrip("u").startswith("int")]
    common = floats[0] if floats and len(set(floats)) == 1 else "float32"
    for tensor in cascade.outputs:
        found[tensor] = as_dtype(by_name.get(tensor) or spec.dtypes.get(tensor) or common).name
    return found


def title_of(cascade: Cascade) -> str:
    """The first line of a kernel's module."""
    inputs = ", ".join(cascade.inputs) or "nothing"
    return f"{', '.join(cascade.outputs)} from {inputs}, compiled from Einsums by nkilab."
