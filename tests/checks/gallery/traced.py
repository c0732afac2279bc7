"""What Beta 1 makes of Python's own values in loops that it traces once, and what iterations carry unseen."""

from __future__ import annotations

import nkilab
from tests.checks.gallery.case import case

with nkilab.activate():
    import neuronxcc.nki as nki
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl
    import numpy as np

X = "f32[4,128,512]"
LAUNCHES = []


def result(x, shape=None):
    return nl.ndarray(shape or x.shape, x.dtype, buffer=nl.shared_hbm)


# ---- the variable of the loop has no value


@case(X)
@nki.jit
def wrong_a_list_is_asked_by_the_index(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    scales = [1.0, 2.0, 3.0, 4.0]
    for i in nl.affine_range(4):
        tile = nl.load(x[i])
        nl.store(out[i], nl.multiply(tile, scales[i]))  # finds: index-value
    return out


@case(X)
@nki.jit
def right_a_list_is_asked_by_a_number(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    scales = [1.0, 2.0, 3.0, 4.0]
    for i in nl.affine_range(2):
        for half in nl.static_range(2):
            tile = nl.load(x[2 * i + half])
            nl.store(out[2 * i + half], nl.multiply(tile, scales[half]))
    return out


@case(X)
@nki.jit
def wrong_the_last_tile_is_found_by_min(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        following = min(i + 1, 3)  # finds: index-value
        nl.store(out[i], nl.load(x[following]))
    return out


@case(X)
@nki.jit
def wrong_pythons_range_of_an_index(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.sequential_range(4):
        tile = nl.load(x[i])
        for _ in range(i):  # finds: index-value
            tile[...] = nl.add(tile, 1.0)
        nl.store(out[i], tile)
    return out


@case(X)
@nki.jit
def wrong_a_power_of_the_index(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        nl.store(out[i], nl.multiply(nl.load(x[i]), 0.5**i))  # finds: index-value
    return out


@case("f32[16,128,512]")
@nki.jit
def wrong_an_index_is_squared(x):
    out = nl.ndarray((4, 128, 512), x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        nl.store(out[i], nl.load(x[i * i]))  # finds: index-value
    return out


@case(X)
@nki.jit
def wrong_a_mask_multiplies_two_indices(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:512]
    for i in nl.affine_range(4):
        for j in nl.affine_range(1):
            tile = nl.load(x[i])
            nl.store(out[i, i_p, i_f], tile, mask=i_p >= i * j)  # finds: mask-expression
    return out


def exponential_of_the_last(x, turn):
    tile = nl.load(x[turn])
    if turn == 3:
        tile = nl.exp(tile)
    return tile


@case(X, elsewhere={"index-branch": "if turn == 3:"})
@nki.jit
def wrong_a_function_branches_on_the_index(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        nl.store(out[i], exponential_of_the_last(x, i))
    return out


@case(X)
@nki.jit
def wrong_a_comparison_has_a_name(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        is_last = i == 3
        tile = nl.load(x[i])
        if is_last:  # finds: index-branch
            tile = nl.exp(tile)
        nl.store(out[i], tile)
    return out


@case(X)
@nki.jit
def right_one_name_is_a_symbol_here_and_a_number_there(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):
        nl.store(out[i], nl.load(x[i]))
    for i in nl.static_range(2):
        tile = nl.load(x[i + 2])
        if i == 1:
            tile = nl.exp(tile)
        nl.store(out[i + 2], tile)
    return out


@case(X)
@nki.jit
def right_a_condition_is_narrowed_step_by_step(x, window=2):
    # as attention with a sliding window of optimum-neuron joins what it skips
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        nl.store(out[i], nl.load(x[i]))
        is_reached = i >= 1
        if window > 0:
            is_reached = is_reached & (i - 1 < window)
        if (i < 4) & is_reached:
            nl.store(out[i], nl.exp(nl.load(x[i])))
    return out


# ---- a tile has a partition axis and a free one


@case("f32[128,64]", "f32[128]")
@nki.jit
def wrong_a_tile_of_one_axis_is_filled(x, bias):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    column = nl.zeros((128,), x.dtype, buffer=nl.sbuf)  # finds: tile-axes
    nl.store(out, nl.add(nl.load(x), column))
    return out


@case("f32[128,64]", "f32[128]")
@nki.jit
def right_the_name_of_a_tile_of_one_axis_is_bound_anew(x, bias):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    column = nl.ndarray((128,), x.dtype, buffer=nl.sbuf)
    column = nl.load(bias)
    nl.store(out, nl.add(nl.load(x), column))
    return out


# ---- Python's own values change once


@case(X)
@nki.jit
def wrong_an_item_of_a_list_is_set(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    seen = [0] * 4
    for i in nl.affine_range(4):
        seen[0] = 1  # finds: traced-effect
        nl.store(out[i], nl.load(x[i]))
    return out


@case(X)
@nki.jit
def wrong_a_number_is_bound_anew(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    place = 0
    for i in nl.affine_range(4):
        nl.store(out[place], nl.load(x[i]))
        place = place + 1  # finds: traced-effect
    return out


@case(X)
@nki.jit
def wrong_two_buffers_change_places(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    front = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf)
    back = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf)
    for i in nl.sequential_range(4):
        front[...] = nl.load(x[i])
        nl.store(out[i], front)
        front, back = back, front  # finds: traced-effect
    return out


@case(X)
@nki.jit
def right_two_buffers_change_places_in_a_static_loop(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    front = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf)
    back = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf)
    for i in nl.static_range(4):
        front[...] = nl.load(x[i])
        nl.store(out[i], front)
        front, back = back, front
    return out


@case(X)
@nki.jit
def wrong_launches_are_noted_in_the_module(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    LAUNCHES.append(x.shape)  # finds: impure-kernel
    for i in nl.affine_range(4):
        nl.store(out[i], nl.load(x[i]))
    return out


# ---- sums that are none


@case(X)
@nki.jit
def wrong_signs_alternate(x):
    """`total - tile` may come in any order; `tile - total` may not."""
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        total[...] = nl.subtract(nl.load(x[i]), total)  # finds: affine-carried
    nl.store(out, total)
    return out


@case(X)
@nki.jit
def right_each_is_subtracted(x):
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        total[...] = nl.subtract(total, nl.load(x[i]))
    nl.store(out, total)
    return out


@case(X)
@nki.jit
def wrong_a_polynomial_by_horner(x):
    """Both operators are associative; one after the other they are not."""
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        tile = nl.load(x[i])
        total[...] = nisa.scalar_tensor_tensor(  # finds: affine-carried
            data=total, op0=np.multiply, operand0=2.0, op1=np.add, operand1=tile
        )
    nl.store(out, total)
    return out


@case(X)
@nki.jit
def right_each_is_scaled_and_added(x):
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        tile = nl.load(x[i])
        total[...] = nisa.scalar_tensor_tensor(
            data=tile, op0=np.multiply, operand0=2.0, op1=np.add, operand1=total
        )
    nl.store(out, total)
    return out


@case(X)
@nki.jit
def wrong_a_running_maximum_is_read_on_the_way(x):
    """Reader and writer run on one engine, which keeps the order of rows and not that of iterations."""
    out = nl.ndarray((128, 1), x.dtype, buffer=nl.shared_hbm)
    best = nl.full((128, 1), -1e30, x.dtype, buffer=nl.sbuf)
    total = nl.zeros((128, 1), x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        most = nl.max(nl.load(x[i]), axis=1, keepdims=True)
        best[...] = nl.maximum(best, most)  # finds: affine-carried
        total[...] = nl.add(total, best)
    nl.store(out, total)
    return out


@case(X)
@nki.jit
def right_a_maximum_is_read_behind_the_loop(x):
    out = nl.ndarray((128, 1), x.dtype, buffer=nl.shared_hbm)
    best = nl.full((128, 1), -1e30, x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        most = nl.max(nl.load(x[i]), axis=1, keepdims=True)
        best[...] = nl.maximum(best, most)
    nl.store(out, best)
    return out


# ---- results that nobody gets


@case(X)  # finds: no-output
@nki.jit
def wrong_the_result_is_not_returned(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        nl.store(out[i], nl.load(x[i]))
