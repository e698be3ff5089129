"""What later versions of torchtitan have that the one which exports are written for has not."""

from __future__ import annotations

from railwright.model.operators.loss_chunks import CHUNKS
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.software.nf4 import is_nf4


def of_later(job: TrainingJob, arch: Transformer) -> list[str]:
    """What torchtitan 0.3 has of a job that this version has not, or has no longer.

    Source: torchtitan 0.3.0 (2026-09), config/configs.py, distributed/parallel_dims.py (experts borrow ranks
    of tensor parallelism), models/common/decoder_sharding.py (keys and values are gathered), trainer.py
    (_validate_cuda_graphs), components/loss.py and lora.py, optimizer/optimizer.py, quantization/nvfp4.py and
    models/deepseek_v3/mtp.py.
    """
    layout = job.layout
    has = {
        "Muon": job.optimizer == "muon",
        "adapters": job.lora is not None and not is_nf4(job),
        "NVFP4": job.dtype == "nvfp4",
        "multi-token prediction, of deepseek_v3": arch.mtp_layers > 0,
        "tensor parallelism without sequence parallelism": layout.tensor > 1 and not layout.sequence_parallel,
        f"the loss in chunks, ChunkedLossWrapper.Config(num_chunks={job.loss_chunks or CHUNKS})": (
            job.chunked_loss == "torchtitan"
        ),
        "CUDA graphs of the step": "step" in job.cuda_graphs and layout.pipeline == 1,
    }
    gone = {
        "experts that are cut beside expert parallelism": arch.is_moe
        and layout.expert > 1
        and layout.expert_cut > 1,
        "rings of keys and values": layout.context > 1 and layout.context_kind == "ring",
    }
    return [
        f"torchtitan 0.3, which is configured in Python, has {words}: {', '.join(found)}"
        for words, which in (("it", has), ("no longer", gone))
        if (found := [name for name, applies in which.items() if applies])
    ]
