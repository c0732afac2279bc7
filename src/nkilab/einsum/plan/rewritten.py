"""Cascades with the same results that are faster for some extents: decisions that the timing model makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ...machine import Machine
from ..language.ast import Cascade, Kind
from ..rewrite.bands import with_bands, with_bands_of_ones, with_whole_bands
from ..rewrite.batch_order import (
    with_batches_first,
    with_choices_last,
    with_collected_results,
    with_rows_behind_scales,
    with_windows_last,
)
from ..rewrite.chunks import solved_scans
from ..rewrite.common import with_common_results, with_small_parts
from ..rewrite.compared import with_compared_values
from ..rewrite.decays import is_decay
from ..rewrite.factor_matrices import with_factor_matrices
from ..rewrite.few_rows import with_full_lanes
from ..rewrite.filters import with_sums_over_filters
from ..rewrite.flattened import with_flat_products
from ..rewrite.gathered import with_chosen_operands, with_one_index
from ..rewrite.joined_states import with_joined_chunks
from ..rewrite.live import live
from ..rewrite.mixtures import with_mixed_operands
from ..rewrite.neighbours import with_neighbours_as_products
from ..rewrite.packed import with_packed_products
from ..rewrite.pieces import with_pieces
from ..rewrite.ranks import with_joined_ranks
from ..rewrite.recurrences import with_first_values
from ..rewrite.repeated import with_repeated_operands
from ..rewrite.scan_parts import scans_of_few_rows, with_scans_in_parts
from ..rewrite.splits import with_chosen_columns, with_columns, with_split_ranks
from ..rewrite.substitution import with_substitutions
from ..rewrite.turns_in_parts import are_linear, with_turns_in_parts
from ..rewrite.unrolled import with_unrolled_ranks
from ..rewrite.views import (
    with_matrices_before_products,
    with_matrices_between,
    with_views,
)
from ..rewrite.window_elements import with_elements_once
from ..rewrite.window_rows import with_overlapping_rows, with_windows_as_rows
from .knobs import Picker
from .normal import has_few_rows, pairs

Rewrite = Callable[[Cascade, int], Cascade]


def _of(form: Rewrite, rewrite: Rewrite) -> Rewrite:
    """A rewrite of a cascade in another form, in which it stays where there is nothing to rewrite."""

    def both(cascade: Cascade, partitions: int) -> Cascade:
        known = form(cascade, partitions)
        other = rewrite(known, partitions)
        return cascade if other is known else other

    return both


def _needed(cascade: Cascade, _: int) -> Cascade:
    return live(cascade)[0]


def _with_operands(rewrite: Rewrite) -> Rewrite:
    """A rewrite of recurrences in chunks or parts, in which their operands lie too."""

    def split(cascade: Cascade, partitions: int) -> Cascade:
        other = rewrite(cascade, partitions)
        return cascade if other is cascade else with_split_ranks(other)

    return _of(_needed, split)


def _in_lanes(cascade: Cascade, partitions: int) -> Cascade:
    """Rows in parts, once what lies side by side is one rank; where rows cannot be spread as they are."""
    joined = _of(lambda c, lanes: with_joined_ranks(_needed(c, lanes), lanes), with_full_lanes)
    return cascade if has_few_rows(cascade, partitions) else joined(cascade, partitions)


def _in_parts(cascade: Cascade, _: int) -> Cascade:
    """Axes in parts, and small operands along what then stands beside these; where both can be."""
    parted = with_split_ranks(cascade)
    repeated = with_repeated_operands(parted) if parted is not cascade else parted
    return cascade if repeated is parted else repeated


def _of_pairs(
    rewrite: Rewrite, cascade: Cascade, partitions: int, machine: Machine | None, picker: Picker
) -> Cascade:
    """A rewrite of products of two tensors each, where a cascade has products of more."""
    return _of(lambda c, lanes: pairs(_needed(c, lanes), machine, picker), rewrite)(cascade, partitions)


def _in_parts_of_turns(cascade: Cascade, partitions: int) -> Cascade:
    """Blocks of linear turns in parts, their lanes in columns."""
    is_linear = any(are_linear(block, cascade) for block in cascade.blocks)
    return _of(with_columns, with_turns_in_parts)(cascade, partitions) if is_linear else cascade


REWRITES: Mapping[str, Rewrite] = {
    "what indices choose as tensors of their own": lambda cascade, _: with_chosen_operands(cascade),
    "indices in columns, some for each lane": with_chosen_columns,
    "what comparisons tell apart, piece by piece": lambda cascade, _: with_pieces(cascade),
    "small ranks unrolled": lambda cascade, _: with_unrolled_ranks(cascade),
    "sums over filters": lambda cascade, _: with_sums_over_filters(cascade),
    "products with what lies near as products of blocks": with_neighbours_as_products,
    "sums over long windows as products of whole bands": with_whole_bands,
    "sums over long windows as products of bands": with_bands,
    "sums over windows as products of bands of ones": with_bands_of_ones,
    "results in strides collected on chip": lambda cascade, _: with_collected_results(cascade),
    "recurrences in chunks, as products": _with_operands(with_joined_chunks),
    "sums over all turns before in chunks, as products": with_substitutions,
    "scans of few rows in parts": _with_operands(with_scans_in_parts),
    "small operands along ranks that they lack": lambda cascade, _: with_repeated_operands(cascade),
    "windows that overlap as rows of a view": lambda cascade, _: with_overlapping_rows(cascade),
    "tables of short rows across": with_choices_last,
    "windows as rows of a matrix": with_windows_as_rows,
    "batches of products before their matrices": lambda cascade, _: with_batches_first(cascade),
    "few rows in parts, one for each lane": _in_lanes,
    "few rows of sums of scaled blocks as columns": with_rows_behind_scales,
    "axes in the parts that indices name": lambda cascade, _: with_split_ranks(cascade),
    "axes in such parts, small operands along ranks that they lack": _in_parts,
    "mixtures of few products as factors of their operands": with_mixed_operands,
    "small products of a batch packed": _of(
        lambda cascade, lanes: with_split_ranks(_needed(cascade, lanes)), with_packed_products
    ),
    "results of windows with their rows last": lambda cascade, _: with_windows_last(cascade),
    "numbers of rows on diagonals of matrices": with_factor_matrices,
    "what products read in parts as matrices": with_matrices_before_products,
    "products of matrices": with_flat_products,
    "products between products as matrices": with_matrices_between,
    "ranks that windows keep apart as one behind them": with_views,
    "lanes of a block in columns": with_columns,
    "turns of linear blocks in parts": _with_operands(_in_parts_of_turns),
    "small operands of large products first": lambda cascade, _: with_small_parts(cascade),
}
# those of products of two tensors
OF_PAIRS = (with_flat_products, with_matrices_between)
# those that are made unless the timing model has them slower
MADE = (
    "products with what lies near as products of blocks",
    "small operands of large products first",
    "what indices choose as tensors of their own",
    "small ranks unrolled",
    "sums over filters",
    "sums over long windows as products of whole bands",
    "sums over long windows as products of bands",
    "windows that overlap as rows of a view",
    "ranks that windows keep apart as one behind them",
)


def rewritten_by(
    picker: Picker, cascade: Cascade, partitions: int, machine: Machine | None = None
) -> Cascade:
    """A cascade as choices want it, its ranks joined where they can be."""
    cascade = with_elements_once(with_compared_values(with_one_index(with_first_values(live(cascade)[0]))))
    cascade = with_common_results(cascade)
    for what, rewrite in REWRITES.items():
        cascade = with_joined_ranks(cascade, partitions) if rewrite is with_columns else cascade
        paired = partial(_of_pairs, rewrite, machine=machine) if rewrite in OF_PAIRS else None
        other = paired(cascade, partitions, picker=Picker()) if paired else rewrite(cascade, partitions)
        options = ("yes", "no") if what in MADE else ("no", "yes")
        if other is not cascade and picker.pick(what, options, costs=(1.0, 1.0)) == "yes":
            cascade = paired(cascade, partitions, picker=picker) if paired else other
    return cascade


def beyond_decays(before: Cascade, after: Cascade, partitions: int) -> list[str]:
    """What coefficients that may be beyond -1 and 1 mean for a kernel."""
    risks, needed = list[str](), live(before)[0]
    few = [scan for scan, _ in scans_of_few_rows(needed, partitions)]
    left = {e.name for e in after.einsums if e.recurrence and e.recurrence.kind == "scan"}
    left |= {e.name for block in after.blocks for e in block.body}
    products = [(e, needed) for e in needed.einsums if e.recurrence and e.recurrence.op0 == "multiply"]
    every = [*products, *solved_scans(needed)]
    for scan in (e for e, own in every if not is_decay(e.operands[0], own)):
        factor = f"{scan.output}: {scan.operands[0]} may be beyond -1 and 1"
        if scan.name not in left:
            risks.append(f"{factor}; results are right where its products over a chunk are within float32")
            risks[-1] += ", and errors of rounding grow with these" * all(scan is not e for e, _ in products)
        elif scan in few:
            risks.append(f"{factor}, so that few rows are no parts for all lanes; limit it by min and max")
    parted = dict.fromkeys(d.origin for d in after.derived.values() if d.kind is Kind.LINEAR)
    within = "turns in parts; results are right where what becomes of 1 in a part is within float32"
    return [*risks, *([f"{', '.join(parted)}: {within}"] if parted else [])]
