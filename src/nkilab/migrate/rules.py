"""Changes that no table of names shows: forms of writing, and what means something else though accepted."""

from __future__ import annotations

from collections.abc import Iterator

from ..dialects.grammar import LAST_PARSED
from . import forms
from .changes import ADVICE, MUST, SILENT, Change, Rule, change
from .source import Source


def rule_changes(source: Source, before: str, after: str) -> Iterator[Change]:
    """What the rules find between two versions."""
    for rule in (rule for rule in RULES if rule.holds(before, after)):
        for node, what, edits in rule.find(source, before):
            yield change(source, node, rule.severity, what, rule.why, rule.replacement, rule.source, edits)


_UPDATE = "NKI 0.3 update guide"
_MIGRATION = "NKI 0.2 migration guide"
_GUIDE = "NKI language guide, indexing"
_BETA1 = ("beta1",)
# the two versions before functions of nki.language came back
_FIRST = ("0.1", "0.2")
_NOTES = "NKI 0.4 release notes, known issues"

RULES: tuple[Rule, ...] = (
    Rule("0.3", SILENT, forms.binary_functions,
         "both operands have one shape and the result the type of the input; Beta 1 broadcast and promoted",
         "give operands of one shape, and dtype= where the types differ", _NOTES, only_from=_BETA1),
    Rule("0.3", MUST, forms.named("language.matmul", forms.is_not_true("transpose_x")),
         "only transpose_x=True is supported",
         "load the left operand with its contraction along the partitions", _NOTES, only_from=_BETA1),
    Rule("0.3", MUST, forms.named("language.random_seed", forms.is_number("seed")),
         "the seed is a tile [1, 1]",
         "use nl.random_seed(nl.full((1, 1), seed, dtype=nl.int32, buffer=nl.sbuf))", _NOTES,
         only_from=_BETA1),
    Rule("0.3", SILENT, forms.named("language.shared_identity_matrix"),
         "the matrix lies in SBUF; it was a constant in HBM", "leave the load out", "stubs of NKI 0.3",
         only_from=("beta1", "0.1", "0.2")),
    Rule("0.3", ADVICE, forms.no_hardware,
         "no instruction divides by a tile or takes remainders; it works in simulation only",
         "multiply with nl.reciprocal(y)", _NOTES, only_from=_BETA1),
    Rule("0.1", MUST, forms.added_matmul,
         "tiles have no operators; the products of a group accumulate in PSUM by themselves",
         "give nisa.nc_matmul the PSUM tile as dst, made by nl.ndarray and not by nl.zeros", _MIGRATION),
    Rule("0.1", MUST, forms.unparsed,
         "the front end reads the text of a kernel, and has a part of Python's grammar",
         "write it otherwise, or do it on the host", "leanprover/KLR, interop/klr/gather.c",
         until=LAST_PARSED, only_from=_BETA1),
    Rule("0.1", MUST, forms.operators, "tiles have no operators",
         "use nisa.tensor_tensor or nisa.tensor_scalar", _MIGRATION, only_from=_BETA1),
    Rule("0.1", MUST, forms.assigned_parts, "a tile is not assigned to; an instruction writes it",
         "use nisa.tensor_copy(dst, src) or another instruction", _MIGRATION, only_from=_BETA1),
    Rule("0.1", MUST, forms.block_axes, "the first axis is the partition; there are no block axes",
         "make a list of tiles, or move the blocks behind the partition axis",
         "block dimension migration guide"),
    Rule("0.1", ADVICE, forms.par_dim, "the first axis is the partition; the mark says nothing",
         "leave it out", _MIGRATION),
    Rule("0.1", MUST, forms.wide_grids,
         "a grid has one axis: the number of cores that share a kernel, 1 or 2",
         "loop over the instances in the kernel", "NKI 0.1 stubs, nki.jit", only_from=_BETA1),
    Rule("0.1", ADVICE, forms.inner_kernels, "kernels do not call kernels",
         "take the decorator off the inner one", _MIGRATION, only_from=_BETA1),
    Rule("0.1", SILENT, forms.integer_enums,
         "dge_mode is numbered otherwise: none was 0 and is 3, unknown was 3 and is 0", "use the member",
         "stubs of NKI beta1 and 0.1", until="0.2", only_from=_BETA1),
    Rule("0.2", SILENT, forms.named("isa.range_select", forms.is_left_out("reduce_cmd")),
         "reduce_cmd is reset_reduce where it was idle: the running maximum starts again", "give reduce_cmd=",
         _UPDATE, only_from=("beta1", "0.1")),
    Rule("0.3", MUST, forms.jit_keyword("platform_target"), "NKI 0.3 removed it",
         "leave it out and set NEURON_PLATFORM_TARGET_OVERRIDE", "NKI 0.3 release notes"),
    Rule("0.3", MUST, forms.jit_keyword("mode"), "NKI 0.3 ignores it: the arguments tell the framework",
         "leave it out", "NKI 0.3 release notes"),
    Rule("0.3", MUST, forms.simulate_kernel, "nki.simulate takes the kernel and gives a function",
         "write nki.simulate(kernel)(...)", "NKI 0.3 release notes", only_from=_BETA1),
    Rule("0.3", MUST, forms.string_buffers, "buffers are members of MemoryRegion, no strings",
         "use nl.sbuf, nl.psum, ...", _UPDATE),
    Rule("0.3", MUST, forms.memory_names, "the names sbuf, psum and hbm do not stand by themselves",
         "use nl.ndarray(shape, dtype, buffer=nl.sbuf)", "NKI quickstart of SDK 2.27 and 2.28",
         only_from=_FIRST),
    Rule("0.3", MUST, forms.integer_enums, "numbers are no longer taken for members", "use the member",
         _UPDATE),
    Rule("0.3", MUST, forms.results_in_hbm, "results lie in shared HBM",
         "allocate it with buffer=nl.shared_hbm", _UPDATE),
    Rule("0.3", MUST, forms.dma_from_psum, "DMA does not read PSUM",
         "copy it to SBUF with nisa.tensor_copy first", _UPDATE, only_from=_FIRST),
    Rule("0.3", MUST, forms.memset_types, "the value has the kind of the tile's type", "give an integer",
         _UPDATE, only_from=_FIRST),
    Rule("0.3", MUST, forms.keyword_only, "the compiler has no parameters after *", "leave the * out",
         _UPDATE, until="0.6"),
    Rule("0.3", MUST, forms.list_defaults, "kernels take tuples, not lists", "write a tuple, and pass tuples",
         _UPDATE, until="0.6"),
    Rule("0.3", ADVICE, forms.identity,
         "documented as not supported by the compiler, though published kernels use it", "use == or !=",
         _UPDATE, until="0.6"),
    Rule("0.3", SILENT, forms.psum_zeros,
         "the first product overwrites what was set, or on trn1 and trn2 adds to it "
         "undefined; accumulate= says which", "make the tile with nl.ndarray, or give accumulate=", _UPDATE,
         only_from=_FIRST),
    Rule("0.3", SILENT, forms.reduce_axis,
         "NKI 0.2 took axis 1 of three or four axes for the last one; now it is axis 1",
         "give the numbers of the trailing axes", _UPDATE, only_from=_FIRST),
    Rule("0.3", SILENT, forms.integer_rows, "the axis stays with size 1 where it was dropped",
         "write a slice, or reshape", _GUIDE, only_from=_FIRST),
    Rule("0.3", SILENT, forms.named("isa.range_select", forms.is_given("on_false_value")),
         "NKI 0.2 wrote FP32_MIN whatever was given; now another value is refused",
         "leave on_false_value out", _UPDATE, only_from=_FIRST),
    Rule("0.4", SILENT, forms.named("isa.nc_transpose", forms.is_given("engine")),
         "engine= was ignored and now decides", "check that the operands suit the engine",
         "NKI 0.4 release notes", only_from=(*_FIRST, "0.3")),
    Rule("0.4", ADVICE, forms.named("isa.dma_transpose"),
         "dst has exactly the transposed shape, with its rank", "check how many axes dst has",
         "NKI 0.4 release notes"),
    Rule("0.4", ADVICE, forms.deprecated("language.tile_size.total_available_sbuf_size"), "deprecated",
         "use tile_size.sbuf_fmax_bytes", "NKI 0.4 release notes"),
    Rule("0.4", ADVICE, forms.deprecated("language.tile_size.psum_fmax"), "deprecated",
         "use tile_size.psum_bank_fmax", "NKI 0.4 stubs"),
    Rule("0.5", SILENT, forms.named("isa.quantize_mx"), "the block scale is twice what it was",
         "check the tolerance", "NKI 0.5 release notes"),
    Rule("0.5", ADVICE, forms.named("language.rsqrt"),
         "it runs on GpSimdE, more precisely, and takes no PSUM tile",
         "use nisa.activation(op=nl.rsqrt) for PSUM", "NKI 0.5 release notes"),
    Rule("0.6", SILENT, forms.named("language.copy"),
         "it runs on VectorE, bit for bit between equal types; it went through float32 on ScalarE",
         "check the cost on the engines", "NKI 0.6 release notes", only_from=("0.3", "0.4", "0.5")),
    Rule("0.6", ADVICE, forms.deprecated("language.dynamic_range"), "deprecated", "use nl.fori_loop",
         "NKI 0.6 release notes", until="0.6"),
    Rule("0.6", ADVICE, forms.reads_registers, "a loop on a register is deprecated", "use nl.while_loop",
         "NKI 0.6 release notes", until="0.6"),
    Rule("0.7", MUST, forms.reads_registers, "a register is not known while the kernel is traced",
         "use nl.while_loop", "documentation of NKI 0.7"),
)  # fmt: skip
