"""Codes of the vendor's compiler: what each means, what is known to raise it, the way out, who tells it.

`NCC_`, E for an error of the user's program or I for an internal one, three letters of the pass, a number.
Source: the table of error codes of SDK 2.32; issues, logs and comments of public repositories; our words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Raised for operators of the framework's graph, not for kernels.
GRAPH = "an operator of the framework's graph, not a kernel"
_TABLE = "AWS Neuron SDK 2.32, compiler error codes"
_NOTES = "AWS Neuron SDK, release notes"
_MEGAKERNEL = "KevGomes1403/nki-moe-megakernel, common pitfalls"
_KILN = "kiln, notes of kernels"


@dataclass(frozen=True)
class CompilerCode:
    """One code."""

    meaning: str  # what the compiler found
    way_out: str = ""  # what to do, imperative; "" if nobody says
    trigger: str = ""  # what is known to raise it
    versions: str = ""  # which compilers raise it, or which one repaired it; "" if that is not known
    source: str = _TABLE  # who tells it


_PARALLEL = "split the model over more cores: tensor or pipeline parallelism"
_FLOAT16 = "convert to a type that the chip has, as float16"
_FLOAT_OPERANDS = "cast the operands to a float type, or accept the loss with --implicit-integer-downcast={}"
_TOO_LONG = CompilerCode(
    "the program has more instructions than the limit",
    f"{_PARALLEL}; or let a kernel have fewer and wider tiles",
    "a kernel unrolled into thousands of blocks; one einsum of all experts; decoders of images and videos "
    "in one graph",
    "the limit is 5 or 10 million, by compiler and options",
    f"{_TABLE}; ports of video models; comments of public kernels",
)
_HBM_FULL = CompilerCode(
    "the tensors of the model do not fit into device memory together",
    f"use a smaller batch, or {_PARALLEL}",
    "16 GB of a core of trn1, 24 GB of a logical core of trn2: long contexts, larger batches, caches",
    source=f"{_TABLE}; logs of training and serving",
)


def _graph(meaning: str, way_out: str) -> CompilerCode:
    return CompilerCode(meaning, way_out, GRAPH)


_CUSTOM_CALL = _graph(
    "a custom call names a target that the compiler does not know", "use one of the targets that it lists"
)
_QUANTIZE, _SCALED = "a QuantizeMX call of the graph", "a ScaledMatmul call of the graph"
_GROUPS = CompilerCode(
    "accumulation groups in psum are at odds",
    "give each sum a tensor of its own in psum, and end it before it is read",
    "several sums of matmuls in one tensor, or too close in a bank; psum read while a sum is open; tensors "
    "at addresses that overlap",
    source="nki-autotune, learnings; nki-library, tensor pools",
)
_INSTRUCTION_SPACE = CompilerCode(
    "tiles do not fit into sbuf, and spilling is disabled",
    "let the compiler place every tile of the kernel, or place every one by address=",
    "tiles with an address and tiles without in one kernel; more pinned tiles than sbuf has room for",
    "NCC_IGCA044 in older compilers",
    _MEGAKERNEL,
)
_BACKEND = CompilerCode(
    "the backend met an error that it has no code for; the text behind it tells what",
    "read the reason in the text: partitions, access pattern, dynamic access, addresses",
    "a compute instruction on partitions that do not start at 0, 32, 64 or 96, or on more than may start "
    "there; operands with different numbers of elements; a run-time offset on a tile in sbuf; an access "
    "pattern beyond its tensor; an instruction on more free axes than it has",
    "NLA001 in compilers 2.14 and 2.15",
    "aws-neuron-sdk issues 859, 1023, 1253; trainium-agent-labs, device log; release notes",
)
_INTEGERS = CompilerCode(
    "tensor_scalar_reduce is given integers",
    "copy them into a float32 tile first",
    "data (012) or reduce_res (013) of integers",
    "seen in NKI 0.6",
    "public kernels of a histogram",
)
COMPILER_CODES: dict[str, CompilerCode] = {
    "NCC_EARG001": CompilerCode("the configuration of logical cores is none that the chip has",
        "set NEURON_LOGICAL_NC_CONFIG to 1, or to 2 on trn2 and later", "--lnc 2 on trn1",
        source=f"{_TABLE}; notes of launchers"),
    "NCC_EBIR023": CompilerCode("an MLP kernel has more than 4096 intermediate columns",
        "split the intermediate axis into tiles, or over more cores"),
    "NCC_EBVF030": _TOO_LONG, "NCC_EXTP004": _TOO_LONG, "NCC_EVRF007": _TOO_LONG, "NCC_EXTP003": _TOO_LONG,
    "NCC_IXTP002": _TOO_LONG, "NCC_EOOM001": _HBM_FULL, "NCC_EOOM002": _HBM_FULL, "NCC_EXSP001": _HBM_FULL,
    "NCC_EVRF009": _HBM_FULL, "NCC_EHCA005": _CUSTOM_CALL, "NCC_EVRF015": _CUSTOM_CALL,
    "NCC_EMOD025": _graph("an axis has no size at compile time",
        "compile with fixed sizes; torch.compile takes dynamic=False"),
    "NCC_ESFH002": _graph("a constant of 64 unsigned bits does not fit into 32",
        "use uint32, or smaller constants"),
    "NCC_ESPP004": _graph("a data type is none that code can be made for", "use a documented data type"),
    "NCC_ESPP047": _graph("a float type of 8 bits is none that the chip has", _FLOAT16),
    "NCC_EVRF005": _graph("a float type of 8 bits is one of the FNUZ variants, which no chip has", _FLOAT16),
    "NCC_EUOC002": _graph("an operator is not supported",
        "use other operators; neuronx-cc list-operators --framework XLA lists them"),
    "NCC_EVRF001": _graph("an operator is not supported", "use other operators of the documented list"),
    "NCC_EVRF004": _graph("a tensor holds complex numbers", "keep real and imaginary parts in two tensors"),
    "NCC_EVRF006": _graph("a random bit generator asks for an algorithm of its own",
        "use the framework's random functions without naming an algorithm"),
    "NCC_EVRF010": _graph("a convolution dilates input and kernel at once", "dilate one of the two"),
    "NCC_EVRF011": _graph("a convolution with a stride dilates its input",
        "leave one of the two out, or resample apart from it"),
    "NCC_EVRF013": _graph("TopK is asked of integers", "cast to a float type first"),
    "NCC_EVRF016": _graph("a scatter that reduces is asked of integers or bools",
        "cast to a float type first"),
    "NCC_EVRF017": _graph("a window reduction dilates its base", "use a base dilation of 1"),
    "NCC_EVRF018": _graph("a window reduction dilates its window", "use a window dilation of 1"),
    "NCC_EVRF019": _graph("a window reduction has not exactly two operands", "reduce one operand at a time"),
    "NCC_EVRF022": _graph("an arithmetic shift is asked of elements that have not 32 bits",
        "cast to int32, uint32 or float32"),
    "NCC_EVRF023": CompilerCode("an input of the graph is larger than 4 GiB", "split the tensor", GRAPH,
        source="a report of embedding tables"),
    "NCC_EVRF029": CompilerCode("sorting is not supported on trn2", "use topk with sorted=True", GRAPH,
        source="reports of sort and topk(sorted=False)"),
    "NCC_EVRF031": _graph("a scatter reaches beyond its operand",
        "let the iota be as long as the operand's axis"),
    "NCC_EVRF035": _graph("a matrix product is asked of 32 or 64-bit integers",
        _FLOAT_OPERANDS.format("dot")),
    "NCC_EVRF036": _graph(f"{_QUANTIZE} has a configuration that is no JSON", "pass a JSON object"),
    "NCC_EVRF037": _graph(f"{_QUANTIZE} has not one operand", "pass the input tensor alone"),
    "NCC_EVRF038": _graph(f"{_QUANTIZE} names an axis that it may not take", "use one of the last two axes"),
    "NCC_EVRF039": _graph(f"{_QUANTIZE} has blocks of another size than 32", "use block_size=32"),
    "NCC_EVRF040": _graph(f"{_QUANTIZE} asks for another way to scale", 'use "EMAX"'),
    "NCC_EVRF041": _graph(f"{_QUANTIZE} takes another type", "cast the input to bfloat16 or float16"),
    "NCC_EVRF042": _graph(f"{_QUANTIZE} has a result of another type or shape",
        "use an 8-bit float type, and a result packed into uint32"),
    "NCC_EVRF043": _graph(f"{_SCALED} has not four operands", "pass both matrices and both scales"),
    "NCC_EVRF044": _graph(f"{_SCALED} has a left side of another type",
        "pass what QuantizeMX returns, packed into uint32"),
    "NCC_EVRF045": _graph(f"{_SCALED} has a result of another type", "use float32 or bfloat16"),
    "NCC_EVRF046": _graph(f"{_SCALED} has a left side of fewer than two axes", "reshape it to two"),
    "NCC_EVRF047": _graph(f"{_SCALED} has a right side of fewer than two axes", "reshape it to two"),
    "NCC_EVRF048": _graph(f"{_SCALED} has batches of different sizes",
        "let both sides have as many matrices"),
    "NCC_EVRF049": _graph(f"{_SCALED} has a configuration that is no JSON", "list axes as whole numbers"),
    "NCC_EVRF050": _graph(f"{_SCALED} sums over axes of different sizes", "let both axes be as long"),
    "NCC_EVRF051": _graph("the type float8_e4m3fn is not supported before trn3", "compile for trn3 or later"),
    "NCC_EVRF052": _graph("the type float8_e4m3 is not supported after trn3", "use float8_e4m3fn"),
    "NCC_EVRF053": _graph(f"{_SCALED} sums over an axis of its batch", "keep the two apart"),
    "NCC_EVRF054": _graph(f"{_SCALED} names a batch axis that is not there", "count axes from 0"),
    "NCC_EVRF055": _graph(f"{_SCALED} sums over an axis that is not there", "count axes from 0"),
    "NCC_EVRF056": _graph("a gather reaches beyond its operand",
        "let max_position_embeddings be at least the sequence's length"),
    "NCC_EVRF057": _graph(f"{_QUANTIZE} returns not two tensors", "declare data and scale"),
    "NCC_EVRF058": _graph(f"{_QUANTIZE} goes along an axis that is no multiple of 4", "pad it"),
    "NCC_EVRF059": CompilerCode("the file of a kernel that the graph calls is not there",
        "trace the model again, after the cache of NKI files is emptied",
        "a compilation in another place than the trace"),
    "NCC_EVRF060": _graph("a scatter is asked of integers", _FLOAT_OPERANDS.format("scatter")),
    "NCC_EVRF061": _graph("an all-reduce is asked of integers", _FLOAT_OPERANDS.format("all_reduce")),
    "NCC_EVRF062": _graph("an operator is asked of 64-bit integers", _FLOAT_OPERANDS.format("pow")),
    "NCC_EVRF063": _graph("a reduce-scatter is asked of integers", _FLOAT_OPERANDS.format("reduce_scatter")),
    "NCC_EVRF064": _graph("the graph breaks a rule of XLA about shapes",
        "look up the instruction in the log"),
    "NCC_EVRF065": CompilerCode("a kernel was traced by a version of NKI that the compiler does not take",
        "install the newer NKI and trace the model again"),
    "Generated MLIR failed verification": CompilerCode("an operand of an instruction is none that it takes",
        "paste the sentence in front of it: it names instruction, operand and what that must be",
        "operands with different partitions or free elements; two tiles in sbuf that start at different "
        "partitions; operands that are not float32; operators or types that an instruction has not",
        "from NKI 0.3 on", "logs of kernels on trn2; ports of video models"),
    "failed to compile NKI kernel": CompilerCode("the front end collects what it cannot trace",
        "read the sentences behind it, one for each cause", "transfers of different sizes; statements and "
        "operators that the front end has not; tiles in the wrong memory; registers in places where a number "
        "is due", "from NKI 0.4 on", "logs of kernels on trn2"),
    "NCC_EBIR026": CompilerCode("offsets of a gather do not begin at partition 0", "pass offsets that begin "
        "there, one column at a time", "index_select of windows in a graph",
        source="a port of a video model to trn2"),
    "NCC_IBIR039": CompilerCode("moving of a matmul is larger than 128 x 512", source="rules of an agent"),
    "NCC_IBIR058": CompilerCode("a matmul lies on a quarter of the array, which trn1 has not",
        "multiply 64 columns at once, or begin at 0 or 64", "nc_matmul of 32 rows and columns at 32 or 96",
        "trn1 alone", "kernels of a mixture of experts"),
    "NCC_IBIR098": CompilerCode("a transfer is asked of descriptors that cannot carry it",
        "use dge_mode.swdge or none", "hwdge and a cast of float32 to bfloat16", "seen in NKI 0.6",
        "logs of kernels on trn2"),
    "NCC_IBIR285": CompilerCode("packed microscaling types are loaded from hbm", "load bytes, or quantize in "
        "the kernel", "dma_copy of float8_e4m3fn_x4 on trn3; nki-library does so, thus sources disagree",
        source=_MEGAKERNEL),
    "NCC_IBIR441": CompilerCode("a memset fills a tile of 16 bits in psum", "leave it out, or use float32",
        source="nki-autotune, learnings"),
    "NCC_IDDT901": CompilerCode("a transpose within device memory failed", "permute neighbouring axes, one "
        "pair at a time", "one permute of axes that are no neighbours; encoders of video above 192 pixels",
        "trn2", "ports of video models"),
    "NCC_IMGN901": CompilerCode("the compiler vectorizes an axis that it cannot", "write a loop of products "
        "of two axes, or call one kernel for all", "a batched matmul of one token; the gated delta rule in a "
        "graph", source="ports of Qwen 3.5 and a router"),
    "NCC_IMPR902": CompilerCode("the analysis of masks failed", "pass masks as inputs, made on the host",
        "masks that a graph fills; sequences shorter than a chunk; writing zeros into part of a buffer",
        source="ports of Nemotron-H and of video models"),
    "NCC_ISMP902": CompilerCode("the simplifier meets another version of islpy", "pin islpy==2026.1",
        "a fresh installation with islpy 2026.2; before it, broadcasts and casts made in a graph",
        "neuronx-cc 2.27", "public reports"),
    "NCC_IVRF100": CompilerCode("an operator of the graph mixes float types, or has no lowering",
        "cast both to bfloat16; pass explicit groups", "float32 + float16; all_to_all without groups",
        source="ports of Whisper and Voxtral; benchmarks on trn3"),
    "NCC_IXCG863": CompilerCode("an operator is none that the chip's engines have",
        "compute it of other operators", "nl.mod, which the simulator takes",
        source="notes of kernels of cryptography"),
    "NCC_IXCG965": CompilerCode("an instruction is none that GpSimd of trn1 has", "use nisa.engine.vector",
        "tensor_tensor with engine=gpsimd; the page of the instruction allows it", "trn1 alone", _KILN),
    "NCC_EBIR033": CompilerCode("source and destination of a transfer have different first axes", "",
        "resampling by a gather in a large graph", source="pave_univr_trn2_repro"),
    "NCC_EGCA111": _INSTRUCTION_SPACE, "NCC_IGCA044": _INSTRUCTION_SPACE,
    "NCC_ESMP002": CompilerCode("an index of a constant tensor is out of bounds", "", GRAPH,
        "from SDK 2.29 on", _NOTES),
    "NCC_INLA001": _BACKEND, "NLA001": _BACKEND,
    "NCC_IXCG864": CompilerCode("an instruction has types, operators or addresses that the chip's "
        "instruction set has not", "split it: multiply by nisa.reciprocal instead of dividing, square and "
        "sum in two instructions", "divide with a tile as operand; tensor_copy from a partition that is no "
        "start; tensor_partition_reduce of int32; activation_reduce of square and add, of which sources "
        "disagree", source=f"{_MEGAKERNEL}; nki-autotune"),
    "NCC_IBIR030": CompilerCode("a run-time offset is a tile that says nothing of its largest index",
        "wrap it: offset.ap(pattern=[[1, 1], [1, 1]], offset=0)", "scalar_offset= given as a slice of a tile "
        "in sbuf", source=_MEGAKERNEL),
    "NCC_IBIR092": CompilerCode("memory that lives from one region of the program into another is not in hbm",
        "give each loop tiles of its own", "a sum that a device loop adds to and does not make; a psum tile "
        "of two device loops", "seen in NKI 0.6", _KILN),
    "NCC_IBIR110": CompilerCode("sums lie too close in a bank of psum", "give each sum a bank of its own",
        "tensors of one bank less than max(512, 4 * columns) bytes apart",
        source="nki-library, tensor pools"),
    "NCC_IBIR158": CompilerCode("an access pattern in sbuf or psum steps over partitions",
        "let the first step be the number of elements per partition, or slice", ".ap() whose first step is "
        "another one", source=_MEGAKERNEL),
    "NCC_IBIR182": CompilerCode("what a collective reads may be unwritten", "", "outputs of kernels that go "
        "into collectives", "repaired in SDK 2.30", _NOTES),
    "NCC_IBIR229": CompilerCode("the tensors of the program do not fit into sbuf", "use smaller tiles",
        "tiles wider than a partition; large bfloat16 models", "repaired in parts in SDK 2.29 and 2.30",
        _NOTES),
    "NCC_IBIR243": CompilerCode("an access pattern reaches beyond its tensor", "make the buffer as large as "
        "the tile, or slice the tile", "a strided slice that is stacked and flattened",
        source="public reports"),
    "NCC_IBIR297": CompilerCode("the verifier itself failed", "set the logical core configuration to 2",
        "few cores per tensor-parallel group", "neuronx-cc 2.23",
        "neuronx-distributed-inference, DeepSeek-V3"),
    "NCC_IBIR440": CompilerCode("a tensor in hbm cannot be placed", "give nl.ndarray a name=",
        "src or dst of a collective without a name", source="nki-library, tests of collectives"),
    "NCC_IBIR530": CompilerCode("a microscaling matmul is asked of a chip before trn3",
        "use nc_matmul, or compile for trn3", "nc_matmul_mx on trn2", source=_MEGAKERNEL),
    "NCC_IBIR605": CompilerCode("an activation has a number as its bias, which trn1 takes of copy and "
        "reciprocal alone", "pass bias= as a tile of one column", "nl.exp or nl.log, or nisa.activation "
        "without bias=, on trn1", "trn1 alone", "trnrand issue 2; torchneuronx"),
    "NCC_IBCG901": CompilerCode("a transfer reads one row for many partitions", "load the row once and "
        "broadcast it on the chip", "dma_copy of Beta 1 whose index does not move with the partition",
        "Beta 1", "kda-for-trainium"),
    "NCC_IBIR040": CompilerCode("stationary of a matmul is taken for its whole tensor",
        "load the part by dma_copy with the offset", "nc_matmul of a tile in sbuf at a run-time offset, on "
        "trn1", "seen in NKI 0.6", _KILN),
    "NCC_IBIR829": CompilerCode("an operand has an address that only the run knows",
        "load the part by dma_copy with the offset", "an instruction other than a transfer at a run-time "
        "offset, on trn1", "seen in NKI 0.6", _KILN),
    "NCC_IBVF012": _INTEGERS, "NCC_IBVF013": _INTEGERS,
    "NCC_IBVF027": CompilerCode("both inputs of an instruction lie in psum", "copy one of them to sbuf first",
        "tensor_tensor of two tiles in psum", source="public kernels on trn2"),
    "NCC_IBVF043": CompilerCode("a copy has a tile as its bias", "give a number, or use nisa.tensor_scalar",
        "nisa.activation(op=nl.copy, bias=tile) on trn1", source=f"{_KILN}; a port of Qwen 3.6"),
    "NCC_INIC902": CompilerCode("combining instructions itself failed", "use nisa.activation_reduce with "
        "reduce_res", "activation of Beta 1 with reduce_op and nothing that takes the sum", "neuronx-cc 2.27",
        "an agent's list of repairs"),
    "NCC_ILLC059": CompilerCode("a tensor of a collective lies on one core of two",
        "launch both cores: kernel[2]", "a collective in a kernel of one core, where logical cores are two",
        "seen in NKI 0.6", "public kernels on many ranks"),
    "NCC_IBVF059": CompilerCode("a tensor of no elements is left", "", "a whole decode step in "
        "nl.dynamic_range", "seen in NKI 0.6", "a report of pitfalls on trn2"),
    "NCC_IGCA030": CompilerCode("the tiles do not fit into sbuf", "use smaller tiles",
        "tiles of more than 64 latents", source="neuronx-distributed-inference, LTX-2"),
    "NCC_IGCA090": CompilerCode("a result is never written", "store to every result",
        "a tensor that is returned alone", source="nki-library, router_topk"),
    "NCC_IGCA103": CompilerCode("a tile that a skipping transfer writes in a loop cannot be spilled",
        "use oob_mode.error, or move the transfer out of the loop", "oob_mode.skip in a device loop",
        source="a public report"),
    "NCC_IGCA108": CompilerCode("an iteration depends on an earlier one", "", "lists of tiles on four axes",
        source="nki-library"),
    "GCA035": CompilerCode("the operands of one instruction do not fit into sbuf together",
        "split the free axis", "tensor_tensor of 198024 bytes per partition, of 196608",
        source="aws-neuron-sdk issue 1060"),
    "SCH713": _GROUPS, "NCC_ISCH714": _GROUPS, "NCC_ISCH715": _GROUPS,
    "NCC_ISCH719": CompilerCode("instructions wait for each other in a circle", "", "an all_gather kernel "
        "with experts over several cores", "neuronx-cc 2.27", "public reports"),
    "NCC_ISCH900": CompilerCode("the scheduler itself failed", "", "large context-parallel attention on trn2",
        source="nki-library, tests"),
    "NCC_ISFV902": CompilerCode("the vectoriser itself failed", "transpose on TensorE",
        "dma_transpose of float32 in Beta 1", "Beta 1", "kda-for-trainium"),
    "NCC_ISIM074": CompilerCode("a part of sbuf or psum is read where nothing was written",
        "write the whole tile first", source="aws-neuron/nkipy"),
    "NCC_INKI016": CompilerCode("the kernel's own assertion failed", "read its text",
        "kernel_assert of nki-library", source="nki-library, kernel_assert"),
    "NCC_IXGM002": CompilerCode("the two cores of a logical core have programs with different numbers of "
        "blocks", "launch on both cores, kernel[2](...), and let both run the same loops",
        "dynamic_range, fori_loop or while_loop in a kernel that runs on one of the two, or whose cores "
        "branch", source="aws-neuron-sdk issue 1388; public reports"),
    "NCC_IXLV002": CompilerCode("names of barriers differ between cores", "", "a kernel with sendrecv that a "
        "graph calls twice", source="aws-neuron-sdk issue 1298"),
    "NCC_ITEN404": CompilerCode("the compiler of Beta 1 itself failed; the text names the pass",
        "read the text: stores, partitions, strides", "+= in sbuf under affine_range (can only handle single "
        "store); a copy whose partitions are no multiples of 32; too many strides",
        "TEN404 in older compilers", "aws-neuron-sdk issues 1047, 1055, 1056, 1057, 1152, 1295"),
    "NCC_ITEN406": CompilerCode("an access has more partition axes than one", "", "shapes printed under "
        "torch.compile", source="aws-neuron-sdk, vLLM debugging guide"),
    "NCC_ITIN902": CompilerCode("the analysis of indices failed", "pass --optlevel=1", "long sequences",
        source="native-torch-autoporting-trainium, error codes"),
    "NCC_ILIN902": CompilerCode("the backward of a softmax crashes the compiler", "", GRAPH,
        "repaired in SDK 2.30", _NOTES),
    "NCC_IRPX902": CompilerCode("comparing shard indices outside of their loops crashes the compiler", "",
        GRAPH, "repaired in SDK 2.32", _NOTES),
    "NCC_ICFG018": CompilerCode("device loops are nested, or go on early", "unroll the outer loop with "
        "nl.static_range", "dynamic_range in dynamic_range", "NKI 0.5; repaired in 0.6",
        "aws-neuron-sdk issue 1346"),
    "NCC_CFG015": CompilerCode("control flow is too deep to be checked", "", "8193 blocks: backward of "
        "attention", "repaired in SDK 2.29", _NOTES),
    "DVR002": CompilerCode("a transformation failed", "leave the option out",
        "nki.compiler.skip_middle_end_transformations with a matmul", "Beta 1", "nki-samples issue 91"),
    "F134": CompilerCode("the compiler ended abnormally", "use a tile within the loop whose variable indexes "
        "it", "a tile of Beta 1 used outside of its loop", "Beta 1",
        "aws-neuron-sdk issue 1000; nki-samples issue 24"),
}  # fmt: skip
# Names of one code in other compilers
OTHER_NAMES = {
    "NCC_SCH713": "SCH713", "TEN404": "NCC_ITEN404", "NCC_NLA001": "NLA001", "ISCH714": "NCC_ISCH714",
}  # fmt: skip
_CODE = re.compile(r"(?:NCC_)?[A-Z]{1,4}\d{3}")


def code_in(words: str) -> str:
    """The code in a line that is pasted, in whatever capitals and brackets; "" if there is none."""
    spelled = _CODE.search(words.upper())
    return OTHER_NAMES.get(spelled[0], spelled[0]) if spelled else ""


def families(name: str) -> str:
    """What the letters of a code say: whose error it is."""
    if not name.startswith("NCC_"):
        return "a sentence of builds that give no code" if " " in name else "a code of an older compiler"
    kinds = {"E": "an error of the user's program", "I": "an error within the compiler"}
    return kinds.get(name.removeprefix("NCC_")[:1], "an error of the compiler")
