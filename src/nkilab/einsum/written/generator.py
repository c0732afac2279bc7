"""R1 to R11: the text that the published generator prints, regenerated token for token."""

from __future__ import annotations

from itertools import product

from ...errors import SpecError, UnsupportedError
from ..language.ast import Access, Einsum
from ..language.spec import Placement, Spec
from .ranks import Ranks

HEADER = """import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as ni
import neuronxcc.nki.language as nl

"""
_DTYPES = {"float16": "nl.float16", "float32": "nl.float32", "bfloat16": "nl.bfloat16"}
_CONSTRUCTORS = {"empty": "nl.ndarray", "zeros": "nl.zeros"}
_INSTRUCTIONS = (
    "Load", "Store", "MatVec", "LoopReduce", "BroadcastTo", "SimpleTensorScalar", "SimpleTensorTensor",
)  # fmt: skip


def as_written(spec: Spec) -> str:
    """The function that the published generator prints for a mapped specification.

    Raises:
        SpecError: if the mapping or binding leaves out what its rules read.
        UnsupportedError: if an instruction is none that it has.
    """
    return HEADER + "\n".join(_Generator(spec).kernel()) + "\n"


def _joined(parts: tuple[object, ...]) -> str:
    return ", ".join(map(str, parts))


class _Generator:
    def __init__(self, spec: Spec) -> None:
        self.spec, self.ranks = spec, Ranks(spec, drops_edges=True)
        self.einsums = {e.name: e for e in spec.cascade.einsums}
        self.lines: list[str] = []
        self.allocated: set[str] = set()
        needed = (("mapping.loop-order", spec.loop_order), ("binding.engine", spec.engines))
        for (name, einsum), (key, held) in product(self.einsums.items(), needed):
            if name not in held:
                raise SpecError(
                    f"{name} has no entry; --as-written completes nothing",
                    hint=f"add one, or compile without --as-written: {einsum.text}",
                ).located(str(spec.node(*key.split(".")).place), key)

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def kernel(self) -> list[str]:
        cascade = self.spec.cascade
        # R1
        parameters = [rank for rank in self.ranks.declared if rank not in cascade.sizes]
        self.put(0, "@nki.jit")
        self.put(0, f"def {self.spec.kernel_name or 'kernel'}({', '.join([*cascade.inputs, *parameters])}):")
        self.emit(list(self.einsums), 0)
        self.put(1, f"return {', '.join(cascade.outputs)}")  # R11
        return self.lines

    def emit(self, einsums: list[str], depth: int) -> None:
        """R6: statements and loops of Einsums at a depth, in the order of the expressions."""
        loops = {name: self.ranks.loops(name) for name in einsums}
        for group, together in self.ranks.in_turns(loops, einsums, depth):
            for member in together:
                self.allocate(member, depth)
            if group is None:
                self.statement(self.einsums[together[0]], depth + 1)
            else:
                count = self.ranks.extent(*group.members[0])
                self.put(depth + 1, f"for {group.variable} in nl.affine_range({count}):")
                self.emit(together, depth + 1)

    def allocate(self, tensor: str, depth: int) -> None:
        """R7: a tensor with a constructor, before the first loop of its producer at its depth."""
        placed = self.ranks.producer(tensor)
        if placed is None or not placed.constructor or tensor in self.allocated:
            return
        if len(placed.unbound) != depth:
            return
        self.allocated.add(tensor)
        outer, inner = (_joined(self.ranks.extents(tensor, r)) for r in (placed.outer, placed.inner))
        first, memory = (
            (f"*[{outer}]", "shared_hbm")
            if placed.component == "HBM"
            else (f"nl.par_dim(*[{outer}])", placed.component.lower())
        )
        self.put(
            depth + 1,
            f"{tensor} = {_CONSTRUCTORS[placed.constructor]}(({first}, *[{inner}]), "
            f"dtype={self.dtype(tensor)}, buffer=nl.{memory})",
        )

    def dtype(self, tensor: str) -> str:
        name = self.spec.dtypes.get(tensor, "float32")
        if name not in _DTYPES:
            raise UnsupportedError(f"{tensor} is {name}; --as-written knows {', '.join(_DTYPES)}")
        return _DTYPES[name]

    def index(self, placed: Placement) -> str:
        """R8."""
        found = []
        for rank in placed.ranks:
            group = self.ranks.group(placed.einsum, rank)
            found.append(group.variable if group is not None and group.is_loop else ":")
        return ", ".join(found)

    def access(self, access: Access, einsum: str, depth: int) -> str:
        """R9: a tensor as an Einsum indexes it, reshaped before if its extents differ from the producer's."""
        placed = self.ranks.placement(access.tensor, einsum)
        made = self.ranks.producer(access.tensor)
        name = access.tensor
        if made is not None and placed.component != "HBM" and einsum != name:
            here = _joined(self.ranks.extents(einsum, placed.ranks))
            if here != _joined(self.ranks.extents(name, made.ranks)):
                self.put(depth, f"{name}_for_{einsum} = {name}.reshape(({here}))")
                name = f"{name}_for_{einsum}"
        return f"{name}[{self.index(placed)}]"

    def statement(self, einsum: Einsum, depth: int) -> None:
        """R10."""
        name = einsum.name
        execution = self.spec.engines[name]
        read = [self.access(a, name, depth) for a in einsum.accesses]
        dst = f"{name}[{self.index(self.ranks.placement(name, name))}]"
        op = f"np.{einsum.map_op or einsum.reduce_op}"
        match execution.instruction:
            case "Load":
                text = f"{dst} = nl.load({read[0]})"
            case "Store":
                text = f"nl.store({dst}, value={read[0]})"
            case "BroadcastTo":
                shape = _joined(self.ranks.extents(name, execution.ranks))
                text = f"{dst} = nl.broadcast_to({read[0]}, shape=tuple([{shape}][1:]))"
            case "MatVec":
                text = f"{dst} += ni.nc_matmul({', '.join(read)})"
            case "LoopReduce":
                text = (
                    f"{dst} = nl.loop_reduce({read[0]}, {op}, "
                    f"loop_indices=[{', '.join(self.reduced(einsum))}], dtype={self.dtype(name)})"
                )
            case "SimpleTensorScalar":
                text = f"{dst} = ni.tensor_scalar({read[0]}, {op}, {read[1]})"
            case "SimpleTensorTensor":
                text = f"{dst} = ni.tensor_tensor({', '.join(read)}, {op})"
            case other:
                raise execution.node.fail(
                    f"{other} is no instruction; the instructions are {', '.join(_INSTRUCTIONS)}"
                )
        self.put(depth, text)

    def reduced(self, einsum: Einsum) -> list[str]:
        """Loop variables of the ranks that vanish."""
        ranks = (r for v in einsum.reduced for r in self.ranks.names_after(einsum.name, v.upper()))
        groups = (self.ranks.group(einsum.name, rank) for rank in ranks)
        return [group.variable for group in groups if group is not None and group.is_loop]
