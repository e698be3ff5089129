#!/bin/bash
#SBATCH --nodes=4
# A script of our own, in the manner of those that launch Megatron-LM.
export CUDA_DEVICE_MAX_CONNECTIONS=1

TP=${TP:-2}
GPUS_PER_NODE=8
PRECISION=${1:-bf16}

MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --num-experts 8
    --moe-router-topk 2
    --swiglu
    --normalization RMSNorm
    --disable-bias-linear
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --untie-embeddings-and-output-weights
    --position-embedding-type rope
    --max-position-embeddings 32768
    --tokenizer-type HuggingFaceTokenizer
    --tokenizer-model mistralai/Mixtral-8x7B-v0.1
)
if [ "$PRECISION" = fp8 ]; then
    PRECISION_ARGS="--bf16 --fp8-format hybrid"
else
    PRECISION_ARGS="--bf16"
fi
PARALLEL_ARGS=(
    --tensor-model-parallel-size $TP
    --sequence-parallel
    --expert-model-parallel-size 8   # two servers
    --expert-tensor-parallel-size 1
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
    --moe-token-dispatcher-type alltoall
    --moe-router-fusion
    --cross-entropy-loss-fusion
)

srun torchrun --nnodes $SLURM_NNODES --nproc_per_node $GPUS_PER_NODE \
    pretrain_gpt.py \
    "${MODEL_ARGS[@]}" "${PARALLEL_ARGS[@]}" $PRECISION_ARGS \
    --seq-length 4096 --micro-batch-size 1 --global-batch-size 128 --train-samples 1000000 \
    --lr 1e-4 --save "$CHECKPOINTS" --use-tp-pp-dp-mapping
