"""Instructions of the Tensor Engine, and nc_transpose, which VectorE can run too."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from threading import local
from typing import Any

import numpy as np
from msgspec.structs import replace

from ..errors import RuleError
from ..tiles.convert import cast, store, widen
from ..tiles.dtypes import FLOAT32, TFLOAT32, DType
from ..tiles.tile import PSUM, SBUF, Layout
from .array_tiles import pair, smallest_columns, tiled
from .costs import engine_step
from .declare import Attr, Example, Flag, Fresh, Immediate, In, Instruction, Limit, Out, Spelled, Step, rule

SIZE = "nki.isa.nc_matmul, tile size"
TRANSPOSE = "nki.isa.nc_transpose"
TYPES = "nki.isa.nc_matmul, data types"
MATMUL_DTYPES = ("float8_e4m3", "float8_e5m2", "float8_e4m3fn", "bfloat16", "float16", "tfloat32", "float32")
FP8 = ("float8_e4m3", "float8_e5m2", "float8_e4m3fn")
WIDE = (FLOAT32, TFLOAT32)
_DOUBLE_ROW = {"perf_mode": "double_row", "stationary.dtype": "float8_e4m3", "moving.dtype": "float8_e4m3",
               "stationary.shape": (16, 2, 16), "moving.shape": (16, 2, 16)}  # fmt: skip


def agree_on_axes(form: Any, name: str) -> None:
    """Hold the free axes of an operand of a product to the sizes that dst has for them.

    M is the partition axis of dst and the free axis of stationary; both spell one size.

    Raises:
        RuleError: if they differ.
    """
    for axis in ("M", "N", "K"):
        starred = f"{axis}*"
        if starred not in form.sizes:
            continue
        if form.sizes.setdefault(axis, form.sizes[starred]) != form.sizes[starred]:
            raise RuleError(
                f"axis {axis} of {name} is {form.sizes[starred]}; it is {form.sizes[axis]} in dst",
                source=form.source,
            )


def resolved_accumulate(cls: Any, form: Any, views: Any, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Whether a product is added to dst: as asked, else if matmuls wrote dst and nothing did since.

    Raises:
        RuleError: if nothing is asked and matmuls wrote dst in part.
    """
    (accumulate,) = values
    if accumulate is not None:
        return (bool(accumulate),)
    covered = views[0].storage.accumulated.of(views[0])
    if covered == "part":
        raise RuleError(
            "dst overlaps what earlier matmuls wrote in part; accumulate is ambiguous",
            hint="say accumulate=True or accumulate=False, or write one rectangle at a time",
            source="nki.isa.nc_matmul, accumulation mode",
        )
    return (covered == "all",)


# one product of each shape and thread, so that adding one needs no fresh memory
_products = local()


def _scratch(shape: tuple[int, ...]) -> np.ndarray:
    scratch: np.ndarray | None = vars(_products).get(str(shape))
    if scratch is None:
        scratch = vars(_products)[str(shape)] = np.empty(shape, np.float32)
    return scratch


def write_product(form: Any, dst: Any, left: Any, right: Any, accumulate: bool) -> None:
    """Write left [K, M] transposed times right [K, N], both float32, to dst, or add it; rounded once."""
    if dst.dtype != np.float32 or dst.ndim != 2 or not dst.flags.c_contiguous:
        product = np.matmul(left.T, right).reshape(dst.shape)
        if accumulate:
            product += widen(dst, form.dst.dtype)
        store(dst, product, form.dst.dtype)
    elif accumulate:
        # memory for one product per form, so that accumulation allocates none
        scratch = _scratch(form.dst.shape)
        np.add(dst, np.matmul(left.T, right, out=scratch), out=dst)
    else:
        np.matmul(left.T, right, out=dst)


def _is_identity(matrix: np.ndarray) -> bool:
    rows, columns = matrix.shape
    return rows == columns and np.array_equal(matrix, np.eye(rows, dtype=matrix.dtype))


def weight_load(form: Any, columns: int, kind: str = "weight_columns") -> Step:
    """Loading a stationary tile; it hides behind the multiplication before it (trn1 guide).

    Up to four columns a cycle (trn1 guide, fast LoadStationary); profiles of trn2 show the fast mode for
    transposes alone.

    Args:
        form: of the product.
        columns: of the stationary tile.
        kind: the fact that says how many of them load in a cycle.
    """
    machine = form.machine
    cycles = columns / machine[kind]
    occupied = cycles / machine["tensor_clock_ghz"]
    return Step("tensor", "LDWEIGHTS", latency_ns=occupied + machine["weight_load_ns"], hidden_ns=occupied)


def multiplication(form: Any, cycles: float, label: str, passes: float = 1) -> Step:
    """Streaming a moving tile: one row a cycle and pass, at least MATMUL's initiation interval, and a bit."""
    machine = form.machine
    rows = max(cycles, machine["matmul_interval_cycles"]) * passes
    interval = (rows + machine["matmul_overhead_cycles"]) / machine["tensor_clock_ghz"]
    return Step("tensor", label, busy_ns=interval, latency_ns=machine["tensor_latency_ns"])


LIMITS = (
    Limit("K", "partitions", SIZE, hint="split the contraction axis and accumulate into one PSUM tile"),
    Limit("M", "stationary_free_max", SIZE, hint="split the free axis of `stationary` into tiles of {most}"),
    Limit("N", "moving_free_max", SIZE, hint="split the free axis of `moving`"),
)
_TWO_BYTES = (*LIMITS[:2], replace(LIMITS[2], constant="moving_free_max_two_bytes"))


def product_limits(form: Any) -> tuple[Limit, ...]:
    """The limits of a product into a dst of its type."""
    return LIMITS if form.dst.itemsize == 4 else _TWO_BYTES


class NcMatmul(Instruction):
    """Multiply on the systolic array: dst[M, N] = stationary[K, M].T @ moving[K, N].

    The contraction axis K runs over the partitions of both operands. Products accumulate in float32.
    `accumulate` None overwrites where no matmul has written since the tile was created or last written by
    another instruction, and adds where one has.
    """

    engines = ("tensor",)
    accumulates = True
    dst = Out("M N*", ("psum",), ("float32", "bfloat16", "float16"))
    stationary = In("K M*", ("sbuf",), MATMUL_DTYPES)
    moving = In("K N*", ("sbuf",), MATMUL_DTYPES)
    is_stationary_onezero = Flag()
    is_moving_onezero = Flag()
    is_transpose = Flag()
    accumulate = Immediate(None, "None, True, False")
    tile_position = Spelled(pair, "(row, column)", ())
    tile_size = Spelled(pair, "(rows, columns)", ())
    perf_mode = Attr("none", ("none", "double_row"))
    limits = LIMITS
    example = Example(
        {"stationary": [[1, 2], [0, 1]], "moving": [[3, 4, 5], [1, -1, 2]]}, {"dst": [[3, 4, 5], [7, 7, 12]]}
    )

    def _check_operand(self, name: str, spec: Any, layout: Any) -> None:
        if self.perf_mode == "double_row":
            # moving holds two rows for each of dst; `_check_limits` compares them
            self.sizes.pop("N*", None)
            super()._check_operand(name, spec, layout)
            self.sizes.update({a: self.sizes[f"{a}*"] for a in "MN" if f"{a}*" in self.sizes})
        else:
            super()._check_operand(name, spec, layout)
            agree_on_axes(self, name)

    @rule(
        "one operand is float32 or tfloat32 and the other is not; both must be or neither",
        source=", data types",
        broken_by={"stationary.dtype": "bfloat16", "moving.dtype": "float32"},
        hint="cast one of them with tensor_copy",
    )
    def wide_types_pair(self) -> bool:
        return (self.stationary.dtype in WIDE) == (self.moving.dtype in WIDE)

    @rule(
        "stationary and moving mix float8_e4m3 and float8_e4m3fn", source=", data types",
        broken_by={"stationary.dtype": "float8_e4m3", "moving.dtype": "float8_e4m3fn"}, chips=("trn3",),
    )  # fmt: skip
    def one_kind_of_e4m3(self) -> bool:
        names = {self.stationary.dtype.name, self.moving.dtype.name}
        return not {"float8_e4m3", "float8_e4m3fn"} <= names

    @rule(
        "an operand is float8_e4m3fn, which TensorE reads from trn3 on", source=", data types",
        broken_by={"stationary.dtype": "float8_e4m3fn", "moving.dtype": "bfloat16"}, chips=("trn1", "trn2"),
    )  # fmt: skip
    def ocp_types_exist(self) -> bool:
        return self.machine.generation >= 4 or "float8_e4m3fn" not in (
            self.stationary.dtype.name, self.moving.dtype.name,
        )  # fmt: skip

    @rule(
        "dst is not float32; PSUM accumulates in float32 "
        "(bfloat16 from trn3 on, or the type of a transposed operand)",
        source=", data types", broken_by={"dst.dtype": "bfloat16"}, chips=("trn1", "trn2"),
        hint="allocate dst as float32 and cast while copying it to sbuf",
    )  # fmt: skip
    def result_is_float32(self) -> bool:
        dtype = self.dst.dtype
        if dtype is FLOAT32 or (self.machine.generation >= 4 and dtype.name == "bfloat16"):
            return True
        return self.is_transpose and dtype in (self.stationary.dtype, self.moving.dtype)

    @rule(
        "one of tile_position and tile_size is given without the other",
        source=", tiling mode",
        broken_by={"tile_size": (64, 64)},
    )
    def tiling_is_complete(self) -> bool:
        return bool(self.tile_position) == bool(self.tile_size)

    @rule(
        "tile_size is not made of 32 (trn2 and later), 64 and 128",
        source=", tiling mode",
        broken_by={"tile_size": (48, 64), "tile_position": (0, 0)},
    )
    def tile_size_exists(self) -> bool:
        if not self.tile_size:
            return True
        return all(n in (32, 64, 128) and n >= smallest_columns(self.machine) for n in self.tile_size)

    @rule(
        "tile_position is not a multiple of tile_size within 128",
        source=", tiling mode",
        broken_by={"tile_size": (64, 64), "tile_position": (32, 0)},
    )
    def tile_position_is_aligned(self) -> bool:
        pairs = zip(self.tile_position, self.tile_size, strict=False)
        return all(p % s == 0 and 0 <= p < 128 for p, s in pairs)

    @rule(
        "the stationary tile is larger than tile_size",
        source=", tiling mode",
        broken_by={"tile_size": (64, 64), "tile_position": (0, 0), "K": 128},
    )
    def stationary_fits_its_tile(self) -> bool:
        return not self.tile_size or (
            self.sizes["K"] <= self.tile_size[0] and self.sizes["M"] <= self.tile_size[1]
        )

    @rule(
        "perf_mode is double_row, which trn1 does not have", source=", performance mode",
        broken_by=_DOUBLE_ROW, chips=("trn1",),
    )  # fmt: skip
    def double_row_exists(self) -> bool:
        return self.perf_mode == "none" or self.machine.generation >= 3

    @rule(
        "perf_mode is double_row and an operand is not float8",
        source=", performance mode",
        broken_by={"perf_mode": "double_row", "stationary.shape": (16, 2, 16), "moving.shape": (16, 2, 16)},
        chips=("trn2", "trn3"),
    )
    def double_row_is_float8(self) -> bool:
        return self.perf_mode == "none" or (
            self.stationary.dtype.name in FP8 and self.moving.dtype.name in FP8
        )

    @rule(
        "perf_mode is double_row with column tiling", source=", performance mode",
        broken_by={**_DOUBLE_ROW, "tile_size": (128, 64), "tile_position": (0, 0)}, chips=("trn2", "trn3"),
    )  # fmt: skip
    def double_row_has_all_columns(self) -> bool:
        return self.perf_mode == "none" or not self.tile_size or self.tile_size[1] == 128

    @rule(
        "perf_mode is double_row and is_transpose is True",
        source="trn2 architecture guide, Double FP8 Matmul Performance",
        broken_by={**_DOUBLE_ROW, "is_transpose": True},
        hint="transpose without perf_mode",
        chips=("trn2", "trn3"),
    )
    def double_row_is_no_transpose(self) -> bool:
        return self.perf_mode == "none" or not self.is_transpose

    @rule(
        "perf_mode is double_row and the first free axis of stationary and moving is not 2",
        source=", layout",
        broken_by={
            "perf_mode": "double_row",
            "stationary.dtype": "float8_e4m3",
            "moving.dtype": "float8_e4m3",
        },
        chips=("trn2", "trn3"),
    )
    def double_row_has_two_rows(self) -> bool:
        if self.perf_mode == "none":
            return True
        return all(len(o.shape) >= 3 and o.shape[1] == 2 for o in (self.stationary, self.moving))

    def _check_limits(self) -> None:
        vars(self)["limits"] = product_limits(self)
        if self.perf_mode == "double_row":
            # half of the contraction lies on the first free axis
            self.sizes["M"] = self.dst.partitions
            self.sizes["N"] = self.dst.free_size
            if (self.sizes["M*"], self.sizes["N*"]) != (self.sizes["M"] * 2, self.sizes["N"] * 2) and (
                self.double_row_has_two_rows.holds(self)
            ):
                raise RuleError(
                    f"stationary has {self.sizes['M*'] // 2} columns and "
                    f"moving {self.sizes['N*'] // 2} per row; dst is [{self.sizes['M']}, {self.sizes['N']}]",
                    source="nki.isa.nc_matmul, layout",
                )
        super()._check_limits()

    resolve = classmethod(resolved_accumulate)

    @classmethod
    def reads_result(cls, values: tuple[Any, ...]) -> bool:
        return bool(values[0])

    @classmethod
    def fresh(cls, layouts: Mapping[str, Any], attributes: Mapping[str, Any]) -> Fresh:
        """[M, N] of float32 in PSUM; the free axes of moving stay as they are."""
        stationary, moving = layouts["stationary"], layouts["moving"]
        halves = 2 if attributes.get("perf_mode") == "double_row" else 1
        rows = moving.shape[2:] if halves == 2 else moving.shape[1:]
        return Fresh((stationary.free_size // halves, *(rows or (1,))), FLOAT32, PSUM)

    @cached_property
    def factors(self) -> tuple[DType, DType] | None:
        """The types of stationary and moving, unless a transpose may pass bits through."""
        is_flat = all(len(layout.shape) == 2 for layout in self.layouts)
        is_product = is_flat and self.dst.dtype is FLOAT32 and not self.is_transpose
        return (self.stationary.dtype, self.moving.dtype) if is_product else None

    def compute(self, dst: Any, stationary: Any, moving: Any, accumulate: bool) -> None:
        rows = stationary.shape[0] * (2 if self.perf_mode == "double_row" else 1)
        left = widen(stationary, self.stationary.dtype).reshape(rows, -1)
        right = widen(moving, self.moving.dtype).reshape(rows, -1)
        if self.is_transpose and self.machine.generation >= 3 and not accumulate and _is_identity(right):
            # hw: transpose mode passes the stationary tile through, bit for bit
            transposed = stationary.reshape(rows, -1).T.reshape(dst.shape)
            cast(dst, self.dst.dtype, transposed, self.stationary.dtype)
            return
        write_product(self, dst, left, right, accumulate)

    def cost(self) -> list[Step]:
        is_wide = self.stationary.dtype is FLOAT32 and not self.is_transpose
        if not is_wide:
            kind = "fast_weight_columns" if self.is_transpose else "weight_columns"
            load = weight_load(self, self.sizes["M"], kind)
            return tiled(self, [load, multiplication(self, self.sizes["N"], "MATMUL")])
        load = weight_load(self, self.sizes["M"], "fp32_weight_columns")
        if self.is_stationary_onezero or self.is_moving_onezero:
            # ones and zeros are exact in half the passes; the page promises no more than that it may be so.
            # On trn1 Mamba of NKIBench is as slow as if it were not, though its profile counts one MATMUL
            passes = self.machine["fp32_passes"] / (1 if self.machine.generation == 2 else 2)
            step = multiplication(self, self.sizes["N"], "MATMUL", passes)
            return tiled(self, [load, replace(step, widening=2.0)])
        # float32 is two instructions of two passes each (profile schema, fp32_mode), each with its weights:
        # the guide's products count 133,658 instructions for 65,536 halves
        half = self.machine["fp32_passes"] / 2
        low, high = (
            multiplication(self, self.sizes["N"], f"MATMUL {which}", half) for which in ("LOW", "HIGH")
        )
        return tiled(self, [load, low, load, high])


class NcTranspose(Instruction):
    """Swap the partition axis with the free axes taken as one: dst[F, P] = data[P, F].

    TensorE multiplies by an identity: data in SBUF, dst in PSUM, up to [128, 128]; on trn1 a NaN or infinity
    spoils its column. VectorE moves up to [32, 32] between any of the two memories.
    """

    engines = ("tensor", "vector")
    dst = Out("F P*", (PSUM, SBUF))
    data = In("P F*")
    engine = Attr("unknown", ("unknown", "tensor", "vector"))
    limits = (
        Limit("P", "partitions", TRANSPOSE),
        Limit("F", "stationary_free_max", TRANSPOSE, hint="split the free axis into tiles of {most}"),
    )
    example = Example({"data": [[1, 2, 3], [4, 5, 6]]}, {"dst": [[1, 4], [2, 5], [3, 6]]})

    def _check_operand(self, name: str, spec: Any, layout: Any) -> None:
        super()._check_operand(name, spec, layout)
        if name == "data" and any(self.sizes[f"{axis}*"] != self.sizes[axis] for axis in "PF"):
            raise RuleError(
                f"dst is [{self.sizes['F']}, {self.sizes['P*']}]; the transpose of data is "
                f"[{self.sizes['F*']}, {self.sizes['P']}]",
                source=self.source,
            )

    @rule(
        "engine is tensor; data is in sbuf and dst in psum there",
        broken_by={"engine": "tensor", "data.memory": "psum"},
        key="err_unsupported_memory",
    )
    def tensor_engine_reads_sbuf_and_writes_psum(self) -> bool:
        return self.engine != "tensor" or (self.data.memory == SBUF and self.dst.memory == PSUM)

    @rule(
        "the tile is larger than [32, 32] and does not go from sbuf to psum; "
        "only TensorE transposes it, that way",
        broken_by={"dst.memory": "sbuf", "F": 64},
        hint="put dst in psum",
        key="err_size_of_dimension_exceed_arch_limit",
    )
    def vector_engine_is_small(self) -> bool:
        most = self.machine["vector_transpose_max"]
        return self.runs_on == "tensor" or (self.sizes["P"] <= most and self.sizes["F"] <= most)

    @rule(
        "dst and data have different types",
        broken_by={"dst.dtype": "bfloat16"},
        hint="transpose into a tile of the type of data, then cast with tensor_copy",
    )
    def types_agree(self) -> bool:
        # hw: trn1 transposes by a product, whose sums are float32; nki-library makes its tiles so
        is_sum = self.machine.generation == 2 and self.runs_on == "tensor" and self.dst.dtype is FLOAT32
        return is_sum or self.dst.dtype is self.data.dtype

    @cached_property
    def runs_on(self) -> str:
        """The engine: the one asked for, else TensorE where the memories allow it."""
        if self.engine != "unknown":
            return self.engine
        return "tensor" if self.data.memory == SBUF and self.dst.memory == PSUM else "vector"

    @classmethod
    def fresh(cls, layouts: Mapping[str, Any], attributes: Mapping[str, Any]) -> Fresh:
        """[F, P] of the type of data; in PSUM if data is in SBUF and VectorE is not asked for."""
        data: Layout = layouts["data"]
        tensor = data.memory == SBUF and attributes.get("engine") != "vector"
        return Fresh((data.free_size, data.partitions), data.dtype, PSUM if tensor else SBUF)

    def compute(self, dst: Any, data: Any) -> None:
        flat = data.reshape(data.shape[0], -1)
        if self.runs_on == "tensor" and self.machine.generation == 2 and self.data.dtype.is_float:
            # hw: a real product with the identity; 0 * inf and 0 * NaN are NaN
            wide = widen(flat, self.data.dtype)
            store(dst, (wide.T @ np.eye(len(wide), dtype=np.float32)).reshape(dst.shape), self.dst.dtype)
            return
        cast(dst, self.dst.dtype, flat.T.reshape(dst.shape), self.data.dtype)

    def cost(self) -> list[Step]:
        if self.runs_on == "vector":
            return [engine_step(self.machine, "vector", "TRANSPOSE", self.sizes["F"])]
        # 2.26 costs: max(P, min(64, F)), whatever the type
        cycles = max(self.sizes["P"], min(64, self.sizes["F"]))
        load = weight_load(self, self.sizes["F"], "fast_weight_columns")
        return [load, multiplication(self, cycles, "MATMUL")]
