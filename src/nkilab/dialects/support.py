"""How far each name of NKI is supported, by declaration; tests prove every line of it.

*Supported*: tests run the name and assert values, limits and a counterexample from a manual, a hand
calculation or an independent implementation. *Accepted*: it runs and has no effect. *Refused*: it raises our
error. What is served but stands in no table here runs without such a proof.
"""

from __future__ import annotations

_ADVISES = "it only advises the vendor's compiler; values and the timing model do not change"
_ANNOTATES = "an annotation; every tensor that a kernel of nki takes may be written"


def _names(**names: str) -> frozenset[str]:
    """Names in the tables of `history` from words per module."""
    return frozenset(
        word if module == "nki" else f"{module}.{word}"
        for module, words in names.items()
        for word in words.split()
    )


# Per spelling: what has no effect, and why.
ACCEPTED: dict[str, dict[str, str]] = {
    "beta1": {
        "compiler.skip_middle_end_transformations": _ADVISES,
        "compiler.enable_stack_allocator": _ADVISES,
        "compiler.force_auto_alloc": "direct addresses are ignored; values do not change",
        "compiler.allocation_scope": _ADVISES,
        "compiler.multi_buffer": _ADVISES,
        "compiler.no_reorder": _ADVISES,
    },
    "nki": {
        "language.par_dim": "the first axis is the partition; the mark says nothing",
        "isa.NkiInstruction.depends_on": (
            "results are those of the program's order; the timing model does not wait for the edge"
        ),
        **{f"typing.{name}": _ANNOTATES for name in ("mutable", "mutable_tensor", "scalar", "tensor")},
    },
}

# Per spelling: what raises our error, and why.
REFUSED: dict[str, dict[str, str]] = {
    "beta1": {
        "isa.builtin_custom_op": "the operator is a compiled library of the vendor's",
        "FrameworkKernel": "it lowers kernels to custom calls of XLA, which nkilab does not make",
        "nccl": "moves data between ranks; nki.collectives does, from NKI 0.2 on",
    },
    "nki": {
        "tensor.indirect": (
            "the documents leave open whether each group of 16 or 32 partitions has offsets of its own, and "
            "what the offsets count"
        )
    },
}

# Per spelling: what tests prove.
SUPPORTED: dict[str, frozenset[str]] = {
    "beta1": _names(
        nki="""
            baremetal benchmark jit profile simulate_kernel tensor trace
        """,
        compiler="""
            psum psum.alloc psum.auto_alloc psum.mod_alloc sbuf sbuf.alloc sbuf.auto_alloc sbuf.mod_alloc
        """,
        isa="""
            activation activation_reduce affine_select bn_aggr bn_stats constants dge_mode dge_mode.hwdge
            dge_mode.none dge_mode.swdge dge_mode.unknown dma_copy dma_engine dma_transpose dropout engine
            engine.gpsimd engine.scalar engine.sync engine.tensor engine.unknown engine.vector fp32
            get_nc_version gpsimd_engine iota local_gather matmul_perf_mode matmul_perf_mode.double_row
            matmul_perf_mode.none max8 memset nc_find_index8 nc_match_replace8 nc_matmul nc_stream_shuffle
            nc_transpose nc_version nc_version.gen2 nc_version.gen3 oob_mode oob_mode.error oob_mode.skip
            range_select reciprocal reduce_cmd reduce_cmd.idle reduce_cmd.reduce reduce_cmd.reset
            reduce_cmd.reset_reduce scalar_engine scalar_tensor_tensor select_reduce sequence_bounds
            tensor_copy tensor_copy_dynamic_dst tensor_copy_dynamic_src tensor_copy_predicated tensor_engine
            tensor_partition_reduce tensor_reduce tensor_scalar tensor_scalar_cumulative tensor_scalar_reduce
            tensor_tensor tensor_tensor_scan unknown_engine vector_engine
        """,
        language="""
            abs add affine_range all all_reduce arange arctan atomic_rmw bfloat16 bfp16 bitwise_and bitwise_or
            bitwise_xor bool_ broadcast_to ceil constants copy cos device_print divide dropout ds empty_like
            equal erf erf_dx exp expand_dims finfo float16 float32 float8_e4m3 float8_e5m2 floor fmod fp32
            full gather_flattened gelu gelu_apprx_sigmoid gelu_apprx_tanh gelu_dx gemm_grid
            gemm_stationary_grid greater greater_equal hbm int16 int32 int8 invert left_shift less less_equal
            load load_transpose2d log logical_and logical_not logical_or logical_xor loop_reduce matmul max
            maximum mean mgrid min minimum mish mod multiply nc ndarray negative not_equal num_programs ones
            par_dim power private_hbm prod program_id program_ndim psum rand random_seed reciprocal relu
            right_shift rms_norm rsqrt sbuf sequential_range shared_constant shared_hbm shared_identity_matrix
            sigmoid sign silu silu_dx sin softmax softplus spmd_dim sqrt square static_cast static_range store
            subtract sum tan tanh tfloat32 tile_size tile_size.bn_stats_fmax tile_size.gemm_moving_fmax
            tile_size.gemm_stationary_fmax tile_size.pmax tile_size.psum_fmax tile_size.psum_min_align
            tile_size.sbuf_min_align tile_size.total_available_sbuf_size transpose trunc uint16 uint32 uint8
            var where zeros zeros_like
        """,
        tensor="""
            assert_shape astype broadcast_to buffer dtype expand_dims itemsize ndim reshape shape view
        """,
        typing="""
            immutable mutable mutable_tensor scalar tensor
        """,
    ),
    "nki": _names(
        nki="""
            dtype jit simulate
        """,
        meta="""
            tensor.arange tensor.identity tensor.zeros
        """,
        collectives="""
            ReplicaGroup all_gather all_gather_v all_reduce all_to_all all_to_all_v collective_permute
            collective_permute_implicit collective_permute_implicit_current_processing_rank_id
            collective_permute_implicit_reduce rank_id reduce_scatter
        """,
        isa="""
            NkiInstruction NkiValidationError VirtualRegister activate2 activation activation_reduce
            affine_select bn_aggr bn_stats constants core_barrier dge_mode dge_mode.hwdge dge_mode.none
            dge_mode.swdge dge_mode.unknown dma_compute dma_copy dma_engine dma_engine.dma
            dma_engine.gpsimd_dma dma_transpose dropout engine engine.dma engine.gpsimd engine.scalar
            engine.sync engine.tensor engine.unknown engine.vector exponential get_nc_sub_version
            get_nc_version gpsimd_engine iota local_gather matmul_perf_mode matmul_perf_mode.double_row
            matmul_perf_mode.none max8 memset nc_find_index8 nc_match_replace8 nc_matmul nc_matmul_mx
            nc_n_gather nc_stream_shuffle nc_transpose nc_version nc_version.gen2 nc_version.gen3
            nc_version.gen4 nonzero_with_count oob_mode oob_mode.error oob_mode.skip quantize_mx rand2
            rand_get_state rand_set_state range_select reciprocal reduce_cmd reduce_cmd.idle
            reduce_cmd.load_reduce reduce_cmd.reduce reduce_cmd.reset reduce_cmd.reset_reduce register_alloc
            register_load register_move register_store rng scalar_engine scalar_tensor_tensor select_reduce
            sendrecv sequence_bounds set_rng_seed tensor_copy tensor_copy_dynamic_dst tensor_copy_dynamic_src
            tensor_copy_predicated tensor_engine tensor_partition_reduce tensor_reduce tensor_scalar
            tensor_scalar_cumulative tensor_scalar_reduce tensor_tensor tensor_tensor_scan topk unknown_engine
            vector_engine
        """,
        language="""
            DType MemoryRegion NKIObject NkiTensor abs abs_max abs_min add affine_range all arctan average
            bfloat16 bitwise_and bitwise_or bitwise_xor bool bool_ broadcast_to bypass ceil copy cos
            device_print divide dropout ds dynamic_range empty_like equal erf erf_dx exp expand_dims float16
            float32 float4_e2m1fn_x4 float8_e4m3 float8_e4m3fn float8_e4m3fn_x4 float8_e5m2 float8_e5m2_x4
            float8_e8m0fnu floor fmod fori_loop full gather_flattened gelu gelu_apprx_sigmoid
            gelu_apprx_sigmoid_dx gelu_apprx_tanh gelu_dx greater greater_equal hbm int16 int32 int8 invert
            is_hbm is_on_chip is_psum is_sbuf left_shift less less_equal load load_transpose2d log logical_and
            logical_not logical_or logical_xor matmul max maximum mean min minimum mish mod multiply ndarray
            negative no_reorder not_equal num_programs ones power prelu private_hbm prod program_id
            program_ndim psum rand random_seed range reciprocal relu right_shift rms_norm rsqrt sbuf
            sequential_range shared_constant shared_hbm shared_identity_matrix sigmoid sign silu silu_dx sin
            softmax softplus sqrt square static_range store subtract sum tan tanh tfloat32 tile_size
            tile_size.bn_stats_fmax tile_size.gemm_moving_fmax tile_size.gemm_stationary_fmax tile_size.pmax
            tile_size.psum_bank_fmax tile_size.psum_bank_fmax_bytes tile_size.psum_fmax
            tile_size.psum_min_align tile_size.psum_num_banks tile_size.sbuf_fmax tile_size.sbuf_fmax_bytes
            tile_size.sbuf_min_align tile_size.sbuf_size_bytes tile_size.total_available_sbuf_size transpose
            trunc uint16 uint32 uint8 var where while_loop zeros zeros_like
        """,
        tensor="""
            address ap broadcast buffer device_value dtype expand_dim flatten_dims get_pattern is_contiguous
            is_identity is_indirect name ndim offset pattern permute rearrange reinterpret_cast reshape
            reshape_dim select shape sim_value size slice squeeze_dim strides vector_select view
        """,
    ),
}
