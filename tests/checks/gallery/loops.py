"""Loops and grids of Beta 1: what iterations and instances carry, and names that outlive them."""

from __future__ import annotations

import nkilab
from tests.checks.gallery.case import case

with nkilab.activate():
    import neuronxcc.nki as nki
    import neuronxcc.nki.compiler as ncc
    import neuronxcc.nki.isa as nisa
    import neuronxcc.nki.language as nl

X = "f32[4,128,512]"


def result(x, shape=None):
    return nl.ndarray(shape or x.shape, x.dtype, buffer=nl.shared_hbm)


@case(X)
@nki.jit
def wrong_a_recurrence_in_affine_range(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    state = nl.zeros((128, 512), x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        state[...] = nl.multiply(state, 0.5) + nl.load(x[i])  # finds: affine-carried
        nl.store(out[i], state)
    return out


@case(X)
@nki.jit
def right_a_recurrence_in_sequential_range(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    state = nl.zeros((128, 512), x.dtype, buffer=nl.sbuf)
    for i in nl.sequential_range(4):
        state[...] = nl.multiply(state, 0.5) + nl.load(x[i])
        nl.store(out[i], state)
    return out


@case(X)
@nki.jit
def wrong_the_neighbour_is_read(x):
    """Each iteration stores a row and reads the one before it back."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out[0], nl.load(x[0]))
    for i in nl.affine_range(3):
        nl.store(out[i + 1], nl.load(out[i]) + nl.load(x[i + 1]))  # finds: affine-carried
    return out


@case(X)
@nki.jit
def right_the_input_is_read(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nl.store(out[0], nl.load(x[0]))
    for i in nl.affine_range(3):
        nl.store(out[i + 1], nl.load(x[i]) + nl.load(x[i + 1]))
    return out


@case(X)
@nki.jit
def wrong_the_next_place_is_read_before_it_is_overwritten(x):
    """Each iteration needs what the next one overwrites."""
    out = nl.ndarray((5, 128, 512), x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(5):
        nl.store(out[i], nl.load(x[0]))
    for i in nl.affine_range(4):
        nl.store(out[i], nl.add(nl.load(out[i + 1]), 1.0))  # finds: affine-carried
    return out


@case(X)
@nki.jit
def wrong_all_iterations_store_to_one_place(x):
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        nl.store(out, nl.load(x[i]))  # finds: affine-output
    return out


@case(X)
@nki.jit
def right_each_iteration_stores_to_its_own(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        nl.store(out[i], nl.load(x[i]))
    return out


@case(X)
@nki.jit
def wrong_halves_overlap(x):
    """Blocks of 128 columns, stored 96 apart."""
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0, :, 0:128])
    nl.store(out, nl.load(x[0]))
    for i in nl.affine_range(4):
        nl.store(out[:, i * 96 : i * 96 + 128], tile)  # finds: affine-output
    return out


@case(X)
@nki.jit
def right_blocks_side_by_side(x):
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0, :, 0:128])
    for i in nl.affine_range(4):
        nl.store(out[:, i * 128 : i * 128 + 128], tile)
    return out


@case(X)
@nki.jit
def wrong_a_tile_is_filled_by_every_iteration(x):
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 512), x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        tile[...] = nl.load(x[i])  # finds: affine-output
    nl.store(out, tile)
    return out


@case(X)
@nki.jit
def right_a_sum_is_a_documented_reduction(x):
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        total += nl.load(x[i])
    nl.store(out, total)
    return out


@case("bf16[4,128,128]", "bf16[4,128,512]")
@nki.jit
def right_matmuls_accumulate(a, b):
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(4):
        total += nisa.nc_matmul(nl.load(a[k]), nl.load(b[k]))
    nl.store(out, nl.copy(total))
    return out


@case(X)
@nki.jit
def right_loop_reduce(x):
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        total = nl.loop_reduce(nl.load(x[i]), op=nl.add, loop_indices=[i])
    nl.store(out, total)
    return out


@case(X)
@nki.jit
def wrong_two_operators_are_mixed(x):
    """A sum and a maximum into one tile: no order of the iterations is as good as another."""
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), x.dtype, buffer=nl.sbuf)
    for i in nl.affine_range(4):
        total[...] = nl.maximum(total, 0.0)  # finds: affine-carried
        total[...] = nl.add(total, nl.load(x[i]))
    nl.store(out, total)
    return out


@case(X, grid=4)
@nki.jit
def wrong_all_instances_store_the_whole_result(x):
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x[nl.program_id(0)]))  # finds: instances-output
    return out


@case(X, grid=4)
@nki.jit
def right_instances_store_their_own(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    nl.store(out[i], nl.load(x[i]))
    return out


@case(X, grid=4)
@nki.jit
def wrong_an_instance_reads_its_neighbour(x):
    out = nl.ndarray((5, 128, 512), x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    if i == 0:
        nl.store(out[0], nl.load(x[0]))
    nl.store(out[i + 1], nl.load(out[i]) + nl.load(x[i]))  # finds: instances-output
    return out


@case(X, grid=4)
@nki.jit
def right_an_instance_reads_the_input(x):
    out = nl.ndarray((5, 128, 512), x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    if i == 0:
        nl.store(out[0], nl.load(x[0]))
    nl.store(out[i + 1], nl.load(x[i]))
    return out


@case(X)
@nki.jit
def wrong_the_last_tile_is_used_behind_the_loop(x):
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        tile = nl.load(x[i])
    nl.store(out, tile)  # finds: out-of-scope
    return out


@case(X)
@nki.jit
def wrong_a_name_is_bound_anew_in_every_iteration(x):
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    total = nl.load(x[0])
    for i in nl.sequential_range(3):
        total = nl.add(total, nl.load(x[i + 1]))  # finds: out-of-scope
    nl.store(out, total)  # finds: out-of-scope
    return out


@case(X)
@nki.jit
def right_a_tile_from_before_the_loop_is_written(x):
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    total = nl.load(x[0])
    for i in nl.sequential_range(3):
        total[...] = nl.add(total, nl.load(x[i + 1]))
    nl.store(out, total)
    return out


@case(X)
@nki.jit
def right_static_range_is_plain_python(x):
    out = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    total = nl.load(x[0])
    for i in nl.static_range(3):
        total = nl.add(total, nl.load(x[i + 1]))
    nl.store(out, total)
    return out


# ---- the text


@case(X)
@nki.jit
def wrong_the_first_iteration_is_special(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        tile = nl.load(x[i])
        if i == 0:  # finds: index-branch
            tile = nl.exp(tile)
        nl.store(out[i], tile)
    return out


@case(X)
@nki.jit
def wrong_the_last_iterations_are_left_out(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        nl.store(out[i], nl.load(x[i]))
        if i >= 4:  # finds: index-branch
            break
    return out


@case(X)
@nki.jit
def wrong_every_second_iteration_is_special(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        if i % 2 == 0:  # finds: index-branch
            nl.store(out[i], nl.load(x[i]))
        else:
            nl.store(out[i], nl.exp(nl.load(x[i])))
    return out


@case(X)
@nki.jit
def right_a_branch_is_a_condition_of_its_instructions(x):
    # as attention of NxD Inference skips what lies beyond the diagonal
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(2):
        for j in nl.affine_range(2):
            sums = nl.ndarray((128, 512), nl.float32)
            is_reached = 2 * i + j >= 1
            if (i < 2) & is_reached:
                tile = nl.load(x[2 * i + j])
                sums[...] = nl.exp(tile)
            else:
                sums[...] = nl.load(x[0])
            tile = nl.add(sums, 1.0)
            nl.store(out[2 * i + j], tile)
    return out


@case(X)
@nki.jit
def right_a_conditional_expression_asks_for_the_step_of_a_sequence(x):
    # a build of kda-for-trainium took both, and the chip was right
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.sequential_range(4):
        scale = 2.0 if i > 0 else 1.0
        if i < 3:
            nl.store(out[i], nl.load(x[i]) * scale)
        else:
            nl.store(out[i], nl.load(x[i]))
    return out


@case(X)
@nki.jit
def wrong_a_conditional_expression_asks_for_the_index(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(4):
        half = i // 2
        scale = 2.0 if half > 0 else 1.0  # finds: index-branch
        nl.store(out[i], nl.load(x[i]) * scale)
    return out


@case(X)
@nki.jit
def right_static_range_knows_its_index(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(4):
        scale = 2.0 if i > 1 else 1.0
        nl.store(out[i], nl.load(x[i]) * scale)
    return out


@case(X)
@nki.jit
def wrong_tiles_are_collected_in_a_list(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    names = []
    for i in nl.affine_range(4):
        names.append(f"tile {i}")  # finds: traced-effect
        nl.store(out[i], nl.load(x[i]))
    return out


@case(X)
@nki.jit
def wrong_iterations_are_counted(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    count = 0
    for i in nl.affine_range(4):
        count += 2  # finds: traced-effect
        nl.store(out[i], nl.load(x[i]))
    return out


@case(X)
@nki.jit
def right_counting_outside_of_the_loop(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    count = 4
    for i in nl.affine_range(count):
        nl.store(out[i], nl.load(x[i]))
    return out


@case(X)
@nki.jit
def wrong_a_mask_divides_the_index(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:512]
    for i in nl.affine_range(4):
        tile = nl.load(x[i])
        nl.store(out[i, i_p, i_f], tile, mask=i_p < 128 + 8 * (i % 2))  # finds: mask-expression
    return out


@case(X)
@nki.jit
def right_a_mask_adds_the_index(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.mgrid[0:128, 0:512]
    for i in nl.affine_range(4):
        tile = nl.load(x[i])
        nl.store(out[i, i_p, i_f], tile, mask=i_p < 128 + 8 * i)
    return out


def helper(x):
    scratch = nl.ndarray(
        (128, 512), x.dtype, buffer=nl.shared_hbm
    )  # not marked: outside of the kernel's lines
    nl.store(scratch, nl.load(x[0]))
    return scratch


@case(X)
@nki.jit
def right_shared_hbm_in_a_branch(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    wants = True
    if wants:
        extra = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
        nl.store(extra, nl.load(x[0]))
    for i in nl.affine_range(4):
        nl.store(out[i], nl.load(x[i]))
    return out


@case(X)
@nki.jit
def wrong_shared_hbm_in_a_loop(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.static_range(4):
        extra = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)  # finds: shared-hbm-level
        nl.store(extra, nl.load(x[i]))
        nl.store(out[i], nl.load(extra))
    return out


@case(X)
@nki.jit
def right_shared_hbm_at_the_top(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    extra = nl.ndarray((128, 512), x.dtype, buffer=nl.shared_hbm)
    nl.store(extra, nl.load(x[0]))
    for i in nl.affine_range(4):
        nl.store(out[i], nl.load(x[i]))
    return out


@case("f32[4,128,512]")
@nki.jit
def right_addresses_are_counted_while_the_body_is_traced(x):
    """As the allocated attention of nki-samples does."""
    out = nl.ndarray((4, 128, 512), x.dtype, buffer=nl.shared_hbm)
    here = 0
    for i in nl.affine_range(4):
        first = nl.ndarray((nl.par_dim(128), 512), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=here))
        here += 2048
        second = nl.ndarray((nl.par_dim(128), 512), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=here))
        here += 2048
        first[...] = nl.load(x[i])
        second[...] = nl.multiply(first, 2.0)
        nl.store(out[i], second)
    return out


@case("f32[128,2048]")
@nki.jit
def right_columns_are_turned_in_place_through_one_bank(x):
    """As the allocated linear layer of nki-samples does; its blocks take turns, its columns never meet."""
    out = nl.ndarray((128, 2048), x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((nl.par_dim(128), 2048), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=0))
    transposed = nl.ndarray(
        (4, nl.par_dim(128), 512), nl.float32, buffer=ncc.psum.mod_alloc(base_bank=0, num_bank_tiles=(1,))
    )
    tile[...] = nl.load(x)
    for m in nl.affine_range(4):
        columns = nl.ds(m * 512, 512)
        transposed[m] = nisa.nc_matmul(tile[:, nl.ds(m * 512, 128)], tile[:, columns])
        tile[:, columns] = nl.copy(transposed[m])
    nl.store(out, tile)
    return out
