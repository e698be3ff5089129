"""What a profile's kernels are, by their names alone."""

from __future__ import annotations

import pytest

from railwright.traces.kernels import NcclKernel, nccl_kernel, op_of, served_by, work_of
from railwright.traces.kineto import Span


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            NcclKernel("all_reduce", "Sum", "bf16", "RING", "LL"),
        ),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
            NcclKernel("all_reduce", "Sum", "float", "RING", "LL"),
        ),
        ("ncclDevKernel_AllGather_RING_LL(x)", NcclKernel("all_gather", "", "", "RING", "LL")),
        (
            "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)",
            NcclKernel("reduce_scatter", "Sum", "f32", "RING", "LL"),
        ),
        (
            "ncclDevKernel_AllReduce_Sum_f32_NVLS_TREE_SIMPLE(x)",
            NcclKernel("all_reduce", "Sum", "f32", "NVLSTREE", "SIMPLE"),
        ),
        ("ncclDevKernel_SendRecv(x)", NcclKernel("sendrecv")),
        ("ncclDevKernel_Generic(x)", NcclKernel(None)),
        ("gloo:all_reduce", NcclKernel("all_reduce")),
        ("nvjet_tst_128x256_64x4", None),
    ],
)
def test_an_nccl_kernels_name_is_taken_apart(name: str, parts: NcclKernel | None) -> None:
    assert nccl_kernel(name) == parts


@pytest.mark.parametrize(
    ("name", "work"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "gemm"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16>(x)", "gemm"),
        ("Cijk_Alik_Bljk_BBS_BH_MT128x128x32", "gemm"),
        (
            "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<cutlass::bfloat16_t>(x)",
            "attention",
        ),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3", "attention"),
        # FlashInfer is more than attention.
        ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, float)", "memory"),
        (
            "kernel_cutlass_kernel_flashinfernormkernelsrmsnormRMSNormKernel_object_at__tensorptrbf16",
            "memory",
        ),
        ("void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &silu>(__nv_bfloat16*)", "memory"),
        ("void flashinfer::AppendPagedKVCacheKernel<128u, 8u, __nv_bfloat16>(int*)", "memory"),
        ("void flashinfer::BatchPrefillWithRaggedKVCacheKernel<flashinfer::KernelTraits<1>>(x)", "attention"),
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<2u, 1u, 8u>(x)", "attention"),
        ("void flashinfer::PODWithKVCacheTensorKernel<flashinfer::KernelTraits<1>>(x)", "attention"),
        ("void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u>(float*)", "attention"),
        ("void flashinfer::mla::BatchMLAPagedAttentionKernel<x>(x)", "attention"),
        ("void at::native::vectorized_elementwise_kernel<4>(int)", "memory"),
        ("void at::native::multi_tensor_apply_kernel<x>(int)", "optimizer"),
        ("void lamb_cuda_kernel_part1<float>(float*)", "optimizer"),
        ("void multi_tensor_apply_kernel<AdamFunctorMaster<__nv_bfloat16>>(long)", "optimizer"),
        ("void fused_adamw_kernel<float>(float*)", "optimizer"),
        # Hadamard transforms of NVFP4 are no Adam.
        ("void transformer_engine::HadamardAmaxTmaKernel<128, 64>(CUtensorMap, float*)", "memory"),
        ("void fast_hadamard_transform_kernel<256, 12, c10::BFloat16>(HadamardParamsBase)", "memory"),
        ("row_col_rht_gemm_device", "gemm"),
        # 'lamb' is in every {lambda()#1} of PyTorch's element-wise kernels.
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::sigmoid_kernel_cuda("
            "at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda(float)#1}>(int, x)",
            "memory",
        ),
        # Types of arguments, a library's name and CUTLASS's number types are no matrix products.
        ("void scal_kernel<float, 1>(cublasTransposeParams<float>, float const*)", "memory"),
        ("void fbgemm_gpu::permute_2D_lengths_kernel<int>(int, int const*)", "memory"),
        ("void moe_permute_kernel<cutlass::bfloat16_t>(int)", "memory"),
        ("void deep_ep::layout::get_dispatch_layout<256>(long const*)", "memory"),
        ("void deep_ep::internode::dispatch<false, 8, false>(int4*, float*)", "communication"),
        ("userbuffers_fp16_sum_inplace_gpu_rr_rs", "communication"),
        (
            "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
            "communication",
        ),
        ("ncclDevKernel_AllGather_RING_LL(x)", "communication"),
        ("mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)", "communication"),
        # Inductor's templates of products carry the name of the operation, or of what is fused to it
        ("triton_tem_fused_mm_add_0", "gemm"),
        ("triton_tem_fused_addmm_relu_1", "gemm"),
        ("triton_tem_fused__grouped_mm_2", "gemm"),
        ("triton_tem_fused_flex_attention_0", "attention"),
        ("triton_poi_fused_add_mul_3", "memory"),
        ("void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4>>(ConvParamsBase)", "memory"),
    ],
)
def test_a_kernel_is_known_by_its_name(name: str, work: str) -> None:
    assert work_of(Span(name, "kernel", 0.0, 1.0, "stream 7")) == work


@pytest.mark.parametrize(
    ("name", "op", "serves"),
    [
        ("void deep_ep::intranode::combine<c10::BFloat16, 8>(int)", "all_to_all", "ep"),
        ("void deep_ep::internode_ll::dispatch<true, 7168>(void*)", "all_to_all", "ep"),
        ("void mori::moe::EpDispatchIntraNodeKernel<hip_bfloat16>(x)", "all_to_all", "ep"),
        ("EpCombineInterNodeV1Kernel_bf16", "all_to_all", "ep"),
        ("userbuffers_fp16_sum_inplace_gpu_mc_ag<4>(int)", "all_gather", "tp"),
        ("userbuffers_fp16_sum_inplace_gpu_rr_rs_oop_stride", "reduce_scatter", "tp"),
        ("kuserbuffers_pushrecv(int, int)", "sendrecv", "tp"),
        ("two_shot_all_reduce_kernel_inplace<float>(int)", "all_reduce", ""),
        ("ncclDevKernel_AllGather_RING_LL(x)", "all_gather", ""),
    ],
)
def test_libraries_beside_nccl_say_what_they_serve(name: str, op: str, serves: str) -> None:
    span = Span(name, "kernel", 0.0, 1.0, "stream 7")
    assert (op_of(span), served_by(span)) == (op, serves)
