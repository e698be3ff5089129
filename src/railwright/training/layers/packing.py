"""Samples packed into sequences: attention works on each alone, everything else on the whole sequence.

Frameworks hand the kernel the borders of the samples (cu_seqlens; Transformer Engine's 'thd' layout), so its
work is that of so many short sequences: the sum of squares of their lengths, at the pace of short ones.
All samples are taken to be as long as their mean.  The sum of squares of lengths that spread by a share c is
(1 + c^2) times that; where samples are short beside the sequence that is little of a step.
Source: NeMo user guide, "Sequence Packing"; Transformer Engine, DotProductAttention, qkv_format 'thd'.
"""

from __future__ import annotations

from railwright.spec.training import TrainingJob
from railwright.training.software.eras import era_of

TILE = 128
"""Tokens of a tile of FlashAttention's and cuDNN's kernels."""


def attended(job: TrainingJob) -> int:
    """Tokens that attention computes together: a sample; a sequence where no kernel takes borders."""
    return job.attended if era_of(job).attention == "flash" else job.sequence


def samples_of(job: TrainingJob) -> int:
    """Runs of `attended` tokens in a microbatch."""
    return max(job.micro_batch * job.sequence // attended(job), 1)


def packing_warnings(job: TrainingJob) -> list[str]:
    """Where `sample_length` does nothing, or cuts samples into parts that are too short."""
    length, context = job.sample_length, job.layout.context
    if length is None:
        return []
    if length >= job.sequence:
        return [f"sample_length {length} does nothing: sequences have {job.sequence} tokens."]
    if attended(job) == job.sequence:
        return [
            f"sample_length does nothing with software {job.software}, whose attention computes "
            "all scores of a sequence and masks those between samples."
        ]
    if context > 1 and length < 2 * context * TILE:
        return [
            f"samples of {length} tokens are cut into {2 * context} parts by layout.context = "
            f"{context}; parts of less than {TILE} tokens waste attention's tiles, which is not counted."
        ]
    return []
