"""Instructions of VectorE that find the eight largest elements of a row, or eight given ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..tiles.convert import cast, store, widen
from ..tiles.dtypes import UINT32
from ..tiles.tile import SBUF
from .attributes import Immediate
from .costs import engine_step
from .declaration_parts import Example, Fresh, Limit, Step
from .declare import INTEGERS, In, Instruction, OptionalOut, Out, call_rule, rule
from .elementwise import as_shape, store_number

MAX8 = "nki.isa.max8"
FIND = "nki.isa.nc_find_index8"
REPLACE = "nki.isa.nc_match_replace8"
AXES_MOST = 5
NOT_FOUND = -1


def _free(source: str) -> Limit:
    hint = "search tiles of {most} and combine what they give"
    return Limit("F*", "max8_free_max", source, "err_size_of_dimension_exceed_arch_limit", hint)


def _rows(array: Any, layout: Any) -> Any:
    """A tile as float32 [P, F]."""
    return widen(array, layout.dtype).reshape(array.shape[0], -1)


def _first(matches: Any, earlier: Any) -> Any:
    """Per row of booleans [P, F], the place of the match after `earlier` [P] others, or NOT_FOUND."""
    if earlier.any():
        matches = matches & (np.cumsum(matches, axis=1, dtype=np.int32) > earlier[:, None])
    places = matches.argmax(axis=1)
    return np.where(matches[np.arange(len(places)), places], places, NOT_FOUND)


class Max8(Instruction):
    """Find the eight largest elements of each row, largest first.

    Free axes count as one. Elements are compared as float32; equal ones are listed as often as they occur.
    """

    engines = ("vector",)
    dst = Out("P 8")
    src = In("P F*")
    limits = (_free(MAX8),)
    example = Example({"src": [[3, -1, 9, 9, 0, 7, 5, 2, 4, 1]]}, {"dst": [[9, 9, 7, 5, 4, 3, 2, 1]]})

    @rule("src has fewer than 8 elements per partition", broken_by={"F": 7})
    def eight_at_least(self) -> bool:
        return self.sizes["F*"] >= 8

    # up to SDK 2.26; NKI 0.6 writes three
    @rule("src has more than five axes", broken_by={"src.shape": (16, 2, 2, 2, 2, 1)})
    def five_axes_at_most(self) -> bool:
        return len(self.src.shape) <= AXES_MOST

    @classmethod
    def fresh(cls, layouts: Mapping[str, Any], attributes: Mapping[str, Any]) -> Fresh:
        """Eight elements per partition, of the type of src."""
        return Fresh((layouts["src"].shape[0], 8), layouts["src"].dtype, SBUF)

    def compute(self, dst: Any, src: Any) -> None:
        largest = np.sort(np.partition(_rows(src, self.src), -8, axis=1)[:, -8:], axis=1)
        store(dst, np.ascontiguousarray(largest[:, ::-1]).reshape(dst.shape), self.dst.dtype)

    def cost(self) -> list[Step]:
        # 2.26 costs: N
        return [engine_step(self.machine, "vector", "MAX8", self.sizes["F*"])]


class NcFindIndex8(Instruction):
    """Find where each of eight values first occurs in its row, counting from 0.

    Free axes count as one. A value that stands several times in `vals` finds one occurrence after the other.
    What is not found has all bits set: 65535 in uint16, 4294967295 in uint32.
    """

    engines = ("vector",)
    mixes = "F"
    dst = Out("P 8", dtypes=("uint32", "uint16"))
    data = In("P F*")
    vals = In("P 8")
    limits = (_free(FIND),)
    example = Example(
        {"data": [[5, 3, 5, 7, 5, 1, 0, 2]], "vals": [[7, 5, 5, 3, 5, 5, 2, 9]]},
        {"dst": [[3, 0, 2, 1, 4, 0xFFFFFFFF, 7, 0xFFFFFFFF]]},
        dtypes={"dst": "uint32"},
    )

    @rule("data has fewer than 8 elements per partition", broken_by={"F": 7})
    def eight_at_least(self) -> bool:
        return self.sizes["F*"] >= 8

    # up to SDK 2.26; NKI 0.6 writes three for data as well
    @rule("data has more than five axes, or vals more than three", broken_by={"vals.shape": (16, 2, 2, 2)})
    def axes_are_few(self) -> bool:
        return len(self.data.shape) <= AXES_MOST and len(self.vals.shape) <= 3

    @classmethod
    def fresh(cls, layouts: Mapping[str, Any], attributes: Mapping[str, Any]) -> Fresh:
        """Eight indices per partition, uint32."""
        return Fresh((layouts["data"].shape[0], 8), UINT32, SBUF)

    def compute(self, dst: Any, data: Any, vals: Any) -> None:
        rows, wanted = _rows(data, self.data), _rows(vals, self.vals)
        places = np.empty(wanted.shape, np.int64)
        for slot in range(8):
            value = wanted[:, slot : slot + 1]
            earlier = (wanted[:, :slot] == value).sum(axis=1)
            places[:, slot] = _first(rows == value, earlier)
        dst[...] = places.astype(dst.dtype).reshape(dst.shape)

    def cost(self) -> list[Step]:
        # 2.26 costs: N
        return [engine_step(self.machine, "vector", "FIND_INDEX8", self.sizes["F*"])]


class NcMatchReplace8(Instruction):
    """Copy a tile with the first occurrence of each of eight values replaced by a number.

    Free axes count as one. The values are taken from the last to the first, each in what those before it
    left, so equal ones replace several occurrences; `dst_idx` receives where, in the order of `vals`, and all
    bits set for what is not found.
    """

    engines = ("vector",)
    mixes = "F"
    dst = Out("P F*")
    data = In("P F*")
    vals = In("P 8")
    imm = Immediate()
    dst_idx = OptionalOut("P 8", dtypes=("uint32", *(d for d in INTEGERS if d != "uint32")))
    limits = (_free(REPLACE),)
    # nki.isa.nc_match_replace8, behavior with duplicate vals
    example = Example(
        {"data": [[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], "vals": [[3, 8, 8, 8, 8, 8, 8, 8]]},
        {"dst": [[1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0]], "dst_idx": [[2, 10, 9, 8, 7, 6, 5, 4]]},
        {"imm": 0},
        dtypes={"dst_idx": "uint32"},
    )

    # up to SDK 2.26; NKI 0.6 writes nothing
    axes_are_few = NcFindIndex8.axes_are_few

    @call_rule("imm is not a number", broken_by={"imm": "zero"})
    def replacement_is_a_number(self, imm: Any) -> bool:
        return isinstance(imm, int | float | np.generic)

    def compute(self, dst: Any, data: Any, vals: Any, dst_idx: Any, imm: Any) -> None:
        rows, wanted = _rows(data, self.data).copy(), _rows(vals, self.vals)
        is_replaced = np.zeros(rows.shape, np.bool_)
        positions = np.empty(wanted.shape, np.int64)
        none = np.zeros((len(rows),), np.int64)
        for slot in reversed(range(8)):
            places = _first(rows == wanted[:, slot : slot + 1], none)
            hit = np.flatnonzero(places != NOT_FOUND)
            rows[hit, places[hit]] = imm
            is_replaced[hit, places[hit]] = True
            positions[:, slot] = places
        number = np.empty((1,), dst.dtype)
        store_number(number, imm, self.dst.dtype)
        cast(dst, self.dst.dtype, as_shape(data, dst.shape), self.data.dtype)
        np.copyto(dst, number, where=is_replaced.reshape(dst.shape))
        if dst_idx is not None:
            dst_idx[...] = positions.astype(dst_idx.dtype).reshape(dst_idx.shape)

    def cost(self) -> list[Step]:
        # 2.26 costs: min(MIN_II, N), read as max; older pages have N
        return [engine_step(self.machine, "vector", "MATCH_REPLACE8", self.sizes["F*"])]
