"""Words that whoever begins with NKI types: what each means, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """A word.

    Args:
        meaning: whole sentences.
        remedy: what to do with it, or where it costs too much.
        others: words that mean the same.
        pages: names that `nkilab explain` knows and that go on from here.
    """

    meaning: str
    remedy: str
    others: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()


TERMS = {
    "load": Term(
        "`nl.load(tensor)` copies a tensor, or a slice of it, from HBM into a new tile in SBUF, where "
        "engines can read it. A tile has at most 128 rows (partitions). In `nki` write "
        "`nisa.dma_copy(dst=tile, src=tensor)`.",
        "Load each element once, in few large pieces: keep a tile that is used again, move a load that does "
        "not depend on the loop out of it, and let rows be at least 2 KiB long.",
        pages=("dma_copy", "contiguous_rows", "dma_transfer_average_bytes"),
    ),
    "store": Term(
        "`nl.store(tensor, tile)` copies a tile from SBUF back to a tensor in HBM. What lies in PSUM is "
        "copied to SBUF first. In `nki` write `nisa.dma_copy(dst=tensor, src=tile)`.",
        "Store each result once, in rows that are as long as they can be; add up in PSUM or SBUF, not in "
        "HBM.",
        pages=("dma_copy", "unwritten-output"),
    ),
    "matmul": Term(
        "TensorE multiplies two tiles: `stationary` [K, M], the weights that stay in the array, and "
        "`moving` [K, N], which streams through. K lies along the partitions of both, at most 128; M is at "
        "most 128, N at most 512. The result [M, N] is a tile in PSUM, where products with the same target "
        "add up. `nl.matmul` transposes for you.",
        "Use bfloat16 where the numbers allow it: float32 takes four times as long. Let N be 512, use the "
        "same `stationary` for several `moving` tiles, and split a long K into products that add up in one "
        "PSUM tile.",
        ("gemm", "dot", "stationary", "moving"), ("nc_matmul", "tensor engine", "mfu_estimated_percent"),
    ),
    "transpose": Term(
        "The axes of a tile exchanged: what lies along the partitions lies along the free axis. TensorE does "
        "it as a product of 128 x 128 elements, into PSUM; DMA while it moves, quickly for 2-byte types.",
        "Ask first whether you need it: a product takes both operands with K along the partitions. What is "
        "used again is transposed once, before the loop.",
        ("transposition", "layout"), ("nc_transpose", "dma_transpose", "matmul"),
    ),
    "affine_range": Term(
        "`for i in nl.affine_range(n)` says that no iteration needs a result of another one, but for sums "
        "in PSUM: iterations may overlap in time. `sequential_range` says that they may need results of "
        "earlier ones, `static_range` that the loop is written out. nkilab computes all three in order.",
        "Where an iteration reads what an earlier one wrote, use `nl.sequential_range`.",
        ("sequential_range", "static_range"), ("affine-carried",),
    ),
    "ndarray": Term(
        "`nl.ndarray(shape, dtype, buffer)` makes a tile or tensor without values: `buffer=nl.sbuf` and "
        "`nl.psum` on chip, where the first axis is the partitions, at most 128; `nl.shared_hbm` for "
        "results of the kernel.",
        "Write every element before something reads it; `nl.zeros` makes one that is filled.",
        pages=("sbuf", "psum", "unwritten-read"),
    ),
    "par_dim": Term(
        "In Beta 1 `nl.par_dim(128)` marks the axis of a shape that lies along the partitions: in `(4, "
        "nl.par_dim(128), 512)` four blocks of 128 partitions with 512 elements each.",
        "In `nki` there is no such mark: the first axis is the partitions, and blocks are tiles of their "
        "own, in a Python list.",
        pages=("partition", "tile"),
    ),
    "mask": Term(
        "In Beta 1 `mask=` says which elements an instruction reads and writes, by comparisons of loop "
        "variables and index grids: `mask=(i * 128 + rows < n)`. The others stay as they are.",
        "Use it for the last, smaller tile; join several with `&`. In `nki` slice tiles to the size that is "
        "left.",
        pages=("partition",),
    ),
    "psum": Term(
        "The memory that TensorE writes: 128 partitions of 16 KiB, in 8 banks of 2 KiB per partition. A "
        "bank holds 512 float32 elements per partition, so a product has at most 512 columns. Products with "
        "the same target add up.",
        "Copy a result to SBUF as soon as its sum is complete, and use several banks, so that the next "
        "product need not wait.",
        ("bank", "psum bank", "accumulate"), ("matmul", "psum-full", "psum_peak_banks"),
    ),
    "sbuf": Term(
        "The memory on chip that engines read and write: 128 partitions, each of 192 KiB on trn1, 224 KiB "
        "on trn2 and 256 KiB on trn3. That is what the chip has; a kernel may use 176 KiB, 208 KiB less 8 "
        "bytes, and 240 KiB less 8 bytes, since the compiler keeps 16 KiB for itself. Older pages say 192 "
        "KiB, or 24 MiB in all: trn1.",
        "Where tiles do not fit, use smaller ones, or use fewer at a time; otherwise they are spilled to "
        "HBM.",
        pages=("partition", "spill", "sbuf-full", "sbuf_peak_bytes"),
    ),
    "hbm": Term(
        "The large memory beside the chip, where arguments and results of a kernel lie. Engines do not "
        "reach it: transfers (DMA) copy between it and SBUF.",
        "Move each byte once; where the same bytes are read again and again, keep them in SBUF.",
        ("dram", "shared_hbm", "private_hbm"), ("load", "store", "HBM bandwidth", "mbu_estimated_percent"),
    ),
    "dma": Term(
        "The transfers between HBM and SBUF, or within them, which run beside the engines. A transfer needs "
        "about 2 us before its first byte arrives, whatever its size.",
        "Make few, large transfers, in rows of 2 KiB or more, and begin them before the tile is needed.",
        ("transfer", "queue"), ("dma_copy", "DMA bandwidth", "DMA issue", "DMA latency"),
    ),
    "engine": Term(
        "What computes: TensorE multiplies matrices and transposes, VectorE combines and reduces tiles, "
        "ScalarE applies functions such as exp, GpSimdE does what the others cannot, SyncE starts "
        "transfers. They run beside each other and wait for each other's results.",
        "Give work to the engine that is not busy, and work on several tiles, so that all have something to "
        "do.",
        ("tensore", "vectore", "scalare", "gpsimde", "synce", "pe", "pool", "act"),
        ("tensor engine", "vector engine", "scalar engine", "gpsimd engine", "sync engine"),
    ),
    "tile": Term(
        "A tensor in SBUF or PSUM, the operand of instructions: its first axis lies along the partitions, "
        "at most 128, the others are the free axes within a partition.",
        "Cut larger tensors into tiles with a loop: 128 rows at a time.",
        pages=("partition", "sbuf", "psum"),
    ),
    "partition": Term(
        "SBUF and PSUM have 128 partitions: rows, each with its own memory and its own lane in every "
        "engine. Instructions work on all partitions at once, and along the free axis one element after "
        "another.",
        "Use all 128: a tile of 32 partitions takes as long as one of 128. To add up or move data across "
        "partitions, transpose, or multiply by a matrix of ones on TensorE.",
        ("partitions", "lane", "free axis", "partition axis"), ("nc_transpose", "tensor_partition_reduce"),
    ),
    "jit": Term(
        "`@nki.jit` makes a Python function a kernel: its calls of `nl` and `nisa` become instructions. It "
        "takes and returns tensors in HBM; the Python around the calls runs once, while the kernel is "
        "traced.",
        "Decide with Python's `if` on shapes and numbers alone, not on what tiles hold: that is not known "
        "then.",
        ("nki.jit", "kernel", "trace"), ("tile", "engine"),
    ),
    "mfu": Term(
        "Model FLOPs utilization: the share of the peak rate of TensorE, in bfloat16, that multiplications "
        "reach which the kernel asks for. `hfu` counts transposes too; `mbu` is the same for bytes of HBM.",
        "Low while TensorE is idle: see what it waits for. Low while TensorE is busy: let N be 512, use "
        "bfloat16, transpose less. A kernel that hardly multiplies has none to raise.",
        ("hfu", "mbu", "utilization"),
        ("mfu_estimated_percent", "hfu_estimated_percent", "mbu_estimated_percent", "matmul"),
    ),
    "bound": Term(
        "What the time of a kernel depends on most: the engine, or the kind of transfer, that is occupied "
        "at least 80 % of the time between first and last event. Where nothing is, what the longest chain "
        "of waits spends most time on.",
        "Make that smaller first: nothing else makes the kernel faster.",
        ("bottleneck", "bound by", "limited by"), ("stall", "critical path"),
    ),
    "critical path": Term(
        "The chain of steps, each waiting for the one before, that reaches from the launch to the end: its "
        "pieces add up to the latency. A step that is not on it may take longer without making the kernel "
        "slower.",
        "Shorten its longest pieces, or take them off it: begin loads earlier, work on two tiles in turn.",
        ("path",), ("bound", "stall"),
    ),
    "advice": Term(
        "What `nkilab check`, `nkilab profile` and `nkilab advise` say about speed. A gain is not guessed: "
        "the change is made in the recorded instructions, which are placed and timed again. Advice never "
        "fails a check. Changes that pay only one after the other are one piece: `buffers + block_mn`.",
        "`nkilab advise FILE.py:KERNEL --apply 1` writes the first piece into the file where it can; `nkilab "
        "explain NAME`, with the name in brackets, says why it pays. Of a piece of several changes it makes "
        "the first: ask again for the next.",
        ("hint", "gain", "combined"), ("bound", "contiguous_rows"),
    ),
    "roofline": Term(
        "The least time in which the chip could do what a kernel asks for: all multiplications at the peak "
        "rate of TensorE, or all arguments and results moved once at full bandwidth, whichever takes "
        "longer. A profile names three nearer limits: `best order`, `least traffic` and `perfect overlap`.",
        "Look at the nearest limit first. Best order: begin loads earlier. Least traffic: keep what is "
        "loaded again. Perfect overlap: give the busiest engine less to do. Within 4 % of the roofline stop.",
        ("distance", "limit", "best order", "least traffic", "perfect overlap"), ("bound", "advice"),
    ),
    "busy": Term(
        "An engine is busy, or occupied, while it takes no further instruction; TensorE also while it waits "
        "for weights to load. What the vendor calls active counts from the start of an instruction until "
        "its result is there, so it is at least as much.",
        "An engine that is busy all the time bounds the kernel: give it less to do. One that is not, waits: "
        "see what for.",
        ("occupied", "occupancy", "active", "idle"), ("bound", "stall", "tensor_engine_active_time"),
    ),
    "spill": Term(
        "Where the tiles that are needed at once do not fit into SBUF, some are saved to HBM and loaded "
        "again: bytes that the kernel does not ask for.",
        "Use smaller tiles, or finish with one before the next is made; `nkilab check` names the lines.",
        ("reload",), ("sbuf", "spill_save_bytes", "spill_reload_bytes"),
    ),
    "latency": Term(
        "The time from the start of the kernel to its end on one NeuronCore. About 12 us of it are launch "
        "and end, which every kernel has. The interval beside it holds the measured time nine times of ten.",
        "Compare kernels by it; where two intervals overlap, measure.",
        ("interval", "total time", "resolution"), ("total_time", "bound"),
    ),
}  # fmt: skip

# What makes a metric better, by what its name contains; the first that fits.
REMEDIES = {
    "total_time": "see what it is bound by, and make that smaller first",
    "window_time": "if it is much less than total_time, launch and end take the rest: do more in one kernel",
    "active_time": "low and the kernel slow: see what the engine waits for; near 100 %: give it less to do",
    "instruction_time": "merge instructions, work on larger tiles, or give some to another engine",
    "instruction_count": "merge instructions and use larger tiles: each has a fixed cost",
    "dma_transfer_time": "move fewer bytes, in longer rows",
    "dma_transfer_count": "load and store several tiles with one transfer",
    "total_bytes": "keep in SBUF what is used again",
    "average_bytes": "small transfers waste time: make them larger, with rows of 2 KiB or more",
    "dma_packet_time": "lengthen rows: short packets keep DMA engines busy with little",
    "dma_queue_count": "few queues are enough if transfers are large",
    "hbm_read": "load once what is used again",
    "hbm_write": "write each result once, in its final type",
    "sbuf_peak": "where it nears what a kernel may use, use smaller tiles or fewer at a time",
    "psum_peak": "at 8 banks products wait for room: copy results out sooner",
    "sbuf_": "merge instructions, so that fewer results are written and read again",
    "psum_": "add up in PSUM, and copy each result out once",
    "spill_": "use smaller tiles, or finish with one before the next is made",
    "transpose": "transpose while loading, or keep operands in the layout that the product wants",
    "flops": "it follows from the shapes; a narrower type makes the same work quicker",
    "max_achievable": "use each loaded element in more products: larger blocks",
    "mfu_": "keep TensorE busy: N of 512, bfloat16, operands there before they are needed",
    "hfu_": "keep TensorE busy; see mfu",
    "mbu_": "high: the kernel is limited by HBM, move fewer bytes; low: transfers wait or are small",
    "intensity": "use each loaded element in more products: larger blocks",
    "bandwidth_ratio": "a constant of the chip: below it a kernel is limited by HBM, above it by TensorE",
}
