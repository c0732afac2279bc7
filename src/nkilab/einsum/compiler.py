"""Compiling: a specification becomes a kernel, and all that goes with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from numbers import Real
from typing import Any

from ..argument_checks import mapping, need, seconds, whole
from ..cycles import seldom_collected
from ..errors import UnsupportedError, UsageError, shown
from ..machine import Machine, machine_named
from ..tiles.dtypes import as_dtype
from ..tracebacks import public
from .attempts import attempted
from .checks.judge import GIVEN, judge
from .checks.model import close_to
from .checks.names import check_cascade, known_ranks
from .compiled import PRINTERS, CompiledEinsum
from .grades import Finding, enforce
from .language.ast import Access, Cascade
from .language.extents import merged_sizes, sized, sizes_of_arrays, with_longer_inputs
from .language.forms import spec_from
from .language.shorthand import need_instructions
from .language.spec import Spec
from .mapped.kernel import Compiled, guide_of, kernel_of, planned
from .mapped.nests import is_whole
from .mapped.opened import open_ranks
from .mapped.parts import with_parts
from .plan.context import Plan, PlanError
from .plan.forwards import need_forward_indices
from .plan.lower import Planning
from .probes import Verdict, verdicts
from .prove import proved
from .ranged import compiled_over
from .reference import need_written
from .rewrite.live import live
from .search import Plans, Search, searched
from .timed import Timed
from .tree.nodes import Kernel
from .written.generator import as_written as text_as_written

# what inputs and outputs may be in either spelling: not packed, no truth values, no exponents alone
TYPES = ("float32", "tfloat32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2",
         "int32", "int16", "int8", "uint32", "uint16", "uint8")  # fmt: skip
TYPES_OF_NKI = (*TYPES, "float8_e4m3fn")
# how what nc_matmul_mx multiplies is written as an Einsum, whose elements have one number each
SCALED = (
    "an element packs four numbers, of which no index chooses one: unpack them to float8_e4m3fn, and give the"
    " scales as a tensor, Z[m, n] = A[m, k] * S[m, k // 32] * B[k, n] * T[k // 32, n]; or write a kernel with"
    " nc_matmul_mx"
)
EXPONENTS = (
    "scales are powers of two, which bfloat16 has too: give it for the dtype, and `pack` converts them"
)


@public
def compile(
    spec: Any, *, sizes: Mapping[str, int | range] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None, dtypes: Mapping[str, Any] | str | None = None,
    scalars: Mapping[str, float] | None = None, outputs: Sequence[str] = (), dialect: str = "",
    as_written: bool = False, strict: bool = False, search: float | Search = 0.0, target: str = "trn2",
    name: str = "",
) -> CompiledEinsum:  # fmt: skip
    """Compile a specification into a kernel.

    Args:
        spec: see `language.forms.spec_from`.
        sizes: extents of ranks that the specification leaves open; of a `range` of them the kernel
            takes the one that it runs at as an argument.
        shapes: of tensors, instead of or beside `sizes`.
        dtypes: of inputs and outputs by name, or one for all; float32, or that of the inputs (bfloat16 for
            floats of one byte), if not given.
        scalars, outputs: for expressions, which alone take them.
        dialect: nki or neuronxcc; nki if not given, neuronxcc for `as_written`.
        as_written: print what the published generator prints, faults and all.
        strict: refuse what is otherwise repaired.
        search: seconds to spend on other choices; a `Search` also says who tries them and keeps them.
        target: chip to choose for.
        name: of the kernel.

    Raises:
        SpecError: if the specification has no meaning, or contradicts itself.
        UnsupportedError: if no nest covers an Einsum.
        AssertionError: if no plan is proved, which is a fault of nkilab.
    """
    _check_options(sizes, shapes, scalars, dtypes, strict, as_written)
    _check_names(outputs, name)
    search = search if isinstance(search, Search) else Search(seconds("search", search))
    dialect = _dialect(dialect, as_written)
    machine = machine_named(target)
    held = spec_from(spec, scalars, outputs)
    held = replace(held, kernel_name=name or held.kernel_name or "kernel")
    numbers = {r: size for r, size in (sizes or {}).items() if not isinstance(size, range)}
    if ranges := {r: size for r, size in (sizes or {}).items() if isinstance(size, range)}:
        at = partial(compile, dtypes=dtypes, dialect=dialect, strict=strict, search=search, target=target)
        return _over_ranges(held, ranges, numbers, shapes or {}, at)
    cascade = _with_extents(held.cascade, numbers, shapes or {})
    held = replace(held, cascade=replace(held.cascade, tensors=cascade.tensors))
    known = replace(held, cascade=cascade)
    if as_written:
        enforce(check_cascade(known))
        return _as_written(held, cascade, target)
    _need_types(known, dtypes, TYPES if dialect == "neuronxcc" else TYPES_OF_NKI)
    held, known, parts, found = _judged(held, known, machine)
    enforce(found, strict=strict)
    if held.is_mapped:
        held = _decided(held, dtypes, search.seconds) if is_whole(held) else _completed(known, dtypes)
        result = _mapped(held, cascade, machine, dialect, found, search)
        return replace(result, changes=(*parts, *result.changes), target=target)
    result = _planned(held, sized(cascade), dtypes, dialect, machine, search)
    return replace(result, findings=found, target=target)


def _judged(
    held: Spec, known: Spec, machine: Machine
) -> tuple[Spec, Spec, tuple[str, ...], tuple[Finding, ...]]:
    """A specification, and it with extents, with what a mapping needs; what was done, what is found."""
    known, parts = with_parts(known, machine)
    held = replace(held, partitioning=known.partitioning)
    is_partial = held.is_mapped and not is_whole(held)
    found = judge(known, machine, GIVEN) if is_partial else judge(known, machine)
    return held, known, tuple(parts), found


def _over_ranges(
    spec: Spec, ranges: Mapping[str, range], sizes: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]], compiled: Callable[..., CompiledEinsum],
) -> CompiledEinsum:  # fmt: skip
    """One kernel for all sizes of ranks that have several."""
    known = known_ranks(spec.cascade)
    several = {name if name in known else name.upper(): sizes for name, sizes in ranges.items()}
    spec = replace(spec, cascade=replace(spec.cascade, open_ranks=frozenset(several)))
    return compiled_over(
        several,
        lambda chosen: compiled(spec, sizes={**sizes, **chosen}, shapes=shapes),
        lambda chosen: sized(_with_extents(spec.cascade, {**sizes, **chosen}, shapes)).sizes,
    )


@seldom_collected()
def _planned(
    spec: Spec, cascade: Cascade, dtypes: Mapping[str, Any] | str | None, dialect: str, machine: Machine,
    search: Search,
) -> CompiledEinsum:  # fmt: skip
    """The kernel of a cascade without a mapping, what no output depends on left out."""
    cascade, unread = live(cascade)
    notes: tuple[str, ...] = ()
    try:
        result = _lowered(spec, cascade, types_of(cascade, spec, dtypes), dialect, machine)
        for output in sorted(spec.any_layout & set(cascade.outputs)):
            result, told = _cheaper_layout(result, output, machine)
            notes += told
    except UnsupportedError as error:
        # where it is of no single Einsum
        raise error.located(cascade.einsums[0].place.file, "einsum.expressions") from None
    except PlanError:
        need_written(cascade)
        raise
    if search.seconds:
        result = searched(Plans(result), search)
    dropped = tuple(f"left out: {name}, which nothing reads" for name in unread)
    return replace(result, changes=(*dropped, *result.changes, *notes))


def _completed(known: Spec, dtypes: Mapping[str, Any] | str | None) -> Spec:
    """A specification whose mapping the compiler completes; its inputs and outputs have types."""
    need_forward_indices(known.cascade)
    return replace(known, dtypes={**known.dtypes, **types_of(known.cascade, known, dtypes)})


def _decided(held: Spec, dtypes: Mapping[str, Any] | str | None, search: float) -> Spec:
    """A specification whose mapping decides everything."""
    need_instructions(held.cascade)
    option = "search" if search else "dtypes" if dtypes else ""
    if option:
        raise UsageError(f"{option} is given with a mapping, which decides", hint="leave one of them out")
    return held


def _with_extents(
    cascade: Cascade, sizes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]
) -> Cascade:
    """A cascade with further extents, and those that shapes of tensors tell.

    A rank may be named as its variable, in small letters, as subscripts write it.

    Raises:
        UsageError: if an extent is of no rank, or there are two of one.
        SpecError: if one contradicts another.
    """
    known = known_ranks(cascade)
    own = dict[str, int]()
    for name, size in sizes.items():
        rank = name if name in known else name.upper()
        if rank not in known:
            ranks = f"the ranks are {', '.join(known)}" if known else "there are no ranks"
            axes = ((t, r) for t in cascade.tensors.values() for r in t.ranks if r.startswith(f"{t.name}_"))
            tensor, unnamed = next(axes, (None, ""))
            shape = f"shapes={{{tensor.name!r}: [{', '.join(tensor.ranks)}]}}" if tensor else ""
            hint = f"leave {name} out; no variable indexes {unnamed} alone: its index tells it, or {shape}"
            hint = close_to(name, known) or hint * bool(tensor)
            raise UsageError(f"size of {name} is given; {ranks}", hint=hint)
        if rank in own:
            raise UsageError(f"two sizes of {rank} are given", hint=f"leave {rank.lower()} or {rank} out")
        own[rank] = size
    complete = with_longer_inputs(merged_sizes(cascade, own), shapes)
    return replace(complete, sizes=sizes_of_arrays(complete, shapes))


def _need_types(spec: Spec, dtypes: Mapping[str, Any] | str | None, known: Sequence[str]) -> None:
    """Refuse types that no kernel of an Einsum takes."""
    asked = dtypes if isinstance(dtypes, Mapping) else {"every tensor": dtypes} if dtypes else {}
    for tensor, dtype in {**spec.dtypes, **asked}.items():
        name = as_dtype(dtype).name
        if name not in known:
            error = UsageError(
                f"dtype of {tensor} is {name}; it must be one of {', '.join(known)}",
                hint=SCALED if as_dtype(dtype).is_packed else EXPONENTS if name == "float8_e8m0fnu" else "",
            )
            is_own = spec.dtypes.get(tensor) == name
            raise error.located(str(spec.node("format", tensor).place), "format") if is_own else error


def _check_names(outputs: Sequence[str], kernel_name: str) -> None:
    """Refuse outputs that are no list of names, and what no function is called."""
    need("outputs", outputs, (tuple, list), 'a tuple of names, such as ("Z",)')
    for output in outputs:
        need("an output", output, str, "the name of a tensor")
    need("name", kernel_name, str, "the name of the kernel's function")
    if kernel_name and not kernel_name.isidentifier():
        raise UsageError(f"name is {shown(kernel_name)}; a function's name has letters, digits and _")


def _check_options(
    sizes: Any, shapes: Any, scalars: Any, dtypes: Any, strict: Any, as_written: object
) -> None:
    """Refuse what is no extent, shape, number or type by name."""
    need("strict", strict, bool, "True or False")
    for name, given, example in (
        ("sizes", sizes, '{"M": 128}'), ("shapes", shapes, '{"A": (128, 64)}'),
        ("scalars", scalars, '{"epsilon": 1e-6}'), ("dtypes", dtypes, '{"A": "bfloat16"}'),
    ):  # fmt: skip
        if given is not None and not (name == "dtypes" and isinstance(given, str)):
            mapping(name, given, example)
    for rank, extent in (sizes or {}).items():
        if as_written is True or not isinstance(extent, range):
            whole(f"the size of {rank}", extent, 1)
    for tensor, shape in (shapes or {}).items():
        need(f"the shape of {tensor}", shape, (tuple, list), "a tuple of extents")
        for extent in shape:
            whole(f"an extent of {tensor}", extent, 1)
    for name, value in (scalars or {}).items():
        need(f"the scalar {name}", value, Real, "a number")
        if isinstance(value, bool):
            raise UsageError(f"the scalar {name} is {value}; it must be a number")


def _dialect(dialect: str, as_written: bool) -> str:
    """The spelling that is asked for."""
    need("dialect", dialect, str, f"one of {', '.join(PRINTERS)}")
    need("as_written", as_written, bool, "True or False")
    dialect = dialect or ("neuronxcc" if as_written else "nki")
    if dialect not in PRINTERS:
        raise UsageError(f"dialect is {dialect}; it must be one of {', '.join(PRINTERS)}")
    if as_written and dialect != "neuronxcc":
        raise UsageError("as_written prints neuronxcc only", hint="leave dialect out")
    return dialect


def _lowered(
    spec: Spec, cascade: Cascade, types: dict[str, str], dialect: str, machine: Machine
) -> CompiledEinsum:
    """The kernel of a cascade without a mapping, by the rules."""
    name, title = spec.kernel_name, title_of(cascade)
    kernel = CompiledEinsum(spec, cascade, name, dialect, machine.name, types, "")
    proofs_of = cache(partial(proved, cascade=cascade, machine=machine))

    def compiled(plan: Plan, told: Sequence[str]) -> CompiledEinsum:
        tree, ctx = plan
        proofs, tried = proofs_of(tree), tuple(ctx.tried)
        own = kernel.of_tree(tree)
        return replace(own, changes=(*told, *ctx.choices), alternatives=tried, proofs=proofs, knobs=ctx.knobs)

    plans, known = Planning(cascade, types, machine, name, title), dict[str, float]()

    def latency(tree: Kernel) -> float:
        own = kernel.of_tree(tree, is_named=False)
        if own.source not in known:
            known[own.source] = own.estimate.latency_us
        return known[own.source]

    @cache
    def price(tree: Kernel) -> float:
        return max(plans.hardware.total(tree.body).values()) / 1000.0

    return attempted(Timed(plans.of, latency, price, proofs_of).best, compiled)


def _cheaper_layout(
    compiled: CompiledEinsum, output: str, machine: Machine
) -> tuple[CompiledEinsum, tuple[str, ...]]:
    """The kernel, or the one that stores an output of two axes the other way round, whichever is faster."""
    if len(compiled.cascade.tensors[output].ranks) != 2:
        return compiled, ()
    turned = with_axes_swapped(compiled.cascade, output)
    spec = replace(compiled.spec, any_layout=frozenset())
    other = _lowered(spec, turned, dict(compiled.dtypes), compiled.dialect, machine)
    first, second = compiled.estimate.latency_us, other.estimate.latency_us
    told = f"any-layout: {output} as declared {first:.1f} us, transposed {second:.1f} us; taken: "
    if second >= first:
        return compiled, (f"{told}as declared",)
    held = replace(other, spec=compiled.spec, transposed=compiled.transposed | {output})
    return held, (f"{told}transposed, and the host transposes back",)


def with_axes_swapped(cascade: Cascade, output: str) -> Cascade:
    """The cascade whose output of two axes is stored the other way round."""
    tensor = cascade.tensors[output]
    assert len(tensor.ranks) == 2

    def turned(access: Access) -> Access:
        return replace(access, indices=access.indices[::-1]) if access.tensor == output else access

    steps = (step.with_body(e.changing(turned) for e in step.body) for step in cascade.steps)
    tensors = {**cascade.tensors, output: replace(tensor, ranks=tensor.ranks[::-1])}
    return replace(cascade, tensors=tensors, steps=tuple(steps))


@seldom_collected()
def _mapped(
    spec: Spec, cascade: Cascade, machine: Machine, dialect: str, found: tuple[Finding, ...], search: Search,
) -> CompiledEinsum:  # fmt: skip
    """The kernel of a mapping, completed where parts of it are missing.

    Of a mapping that is given whole, extents that the specification leaves open stay parameters; to complete
    one, the extents that are given are taken as they are.
    """

    def compiled(
        tree: Kernel, whole: Spec, findings: tuple[Finding, ...], notes: Sequence[str], proofs: Sequence[str]
    ) -> CompiledEinsum:
        types = {t: whole.dtypes.get(t, "float32") for t in cascade.tensors}
        kernel = CompiledEinsum(
            replace(whole, cascade=spec.cascade), cascade, spec.kernel_name, dialect, machine.name, types, "",
            findings=findings, changes=tuple(notes), proofs=tuple(proofs),
        )  # fmt: skip
        return kernel.of_tree(tree)

    if search.seconds:
        return _searched(spec, machine, title_of(cascade), found, search, compiled)
    return kernel_of(spec, machine, title_of(cascade), found, compiled)


def _searched(
    spec: Spec, machine: Machine, title: str, found: tuple[Finding, ...], search: Search, compiled: Compiled,
) -> CompiledEinsum:  # fmt: skip
    """The best kernel that a search finds among the plans that keep what is given."""
    is_open = bool(open_ranks(spec))
    plans = [] if is_open else list(guide_of(spec, machine, title).plans())
    if not plans:
        told = "has open extents" if is_open else "is followed by one kernel, not by plans"
        raise UsageError(
            f"search is given with a mapping that {told}: nothing is left to try", hint="leave search out"
        )

    first = replace(planned(spec, plans[0], found, compiled), knobs=plans[0].knobs)
    return searched(Plans(first, plans[0].guide, plans[0].given), search)


def _as_written(spec: Spec, cascade: Cascade, target: str) -> CompiledEinsum:
    need_instructions(cascade)
    if spec.root is None:
        raise UsageError(
            "as_written is given; the published generator reads YAML with a mapping alone",
            hint="leave as_written out, or give a specification in YAML",
        )
    types = {t: spec.dtypes.get(t, "float32") for t in cascade.tensors}
    declared = dict.fromkeys(r for t in cascade.tensors.values() for r in t.ranks)
    parameters = tuple(r for r in declared if r not in spec.cascade.sizes)
    return CompiledEinsum(
        spec, cascade, spec.kernel_name, "neuronxcc", target, types, text_as_written(spec), parameters
    )


@public
def verify(kernel: Any, spec: Any, seed: int = 0) -> list[Verdict]:
    """Run a kernel on probes and compare it with the cascade of a specification that has all extents.

    Args:
        kernel: callable with plain arrays.
        spec: see `compile`.
        seed: of the probes.
    """
    if not callable(kernel):
        raise UsageError(f"kernel is {shown(kernel)}; it must be a function of plain arrays")
    whole("seed", seed, 0)
    held = spec_from(spec)
    cascade = sized(held.cascade)
    return list(verdicts(kernel, cascade, types_of(cascade, held, None), seed))


def types_of(cascade: Cascade, spec: Spec, given: Mapping[str, Any] | str | None) -> dict[str, str]:
    """The type of every input and output: given, of the specification, or that of the inputs.

    Results of inputs that have floats of one byte have two: such a type is chosen with a scale.
    """
    by_name = given if isinstance(given, Mapping) else {}
    found: dict[str, str] = {}
    for tensor in by_name:
        if tensor not in cascade.tensors:
            raise UsageError(f"dtype of {tensor} is given; the tensors are {', '.join(cascade.tensors)}")
    for tensor in cascade.inputs:
        default = (
            "int32" if tensor in dict(cascade.index_ranks) else given if isinstance(given, str) else "float32"
        )
        found[tensor] = as_dtype(by_name.get(tensor) or spec.dtypes.get(tensor) or default).name
    floats = [d for d in found.values() if as_dtype(d).is_float]
    common = floats[0] if floats and len(set(floats)) == 1 else "float32"
    common = "bfloat16" if as_dtype(common).storage.itemsize == 1 else common
    common = given if isinstance(given, str) else common
    for tensor in cascade.outputs:
        found[tensor] = as_dtype(by_name.get(tensor) or spec.dtypes.get(tensor) or common).name
    return found


def title_of(cascade: Cascade) -> str:
    """The first line of a kernel's module."""
    inputs = ", ".join(cascade.inputs) or "nothing"
    return f"{', '.join(cascade.outputs)} from {inputs}, compiled from Einsums by nkilab."
