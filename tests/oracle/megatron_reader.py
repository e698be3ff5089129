"""Read exports by a checkout of Megatron-LM: its parser, its validation and its configuration of a model.

Run by the Python that has PyTorch: `megatron_reader.py CHECKOUT`, exports as JSON on standard input (a list
of `text`, `world` ranks and `capability` of the GPU), what each came to as JSON on standard output.
What looks for a GPU or for Transformer Engine is told that both are there; nothing is trained.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import sys
import typing
from typing import Any

VARIABLES = ("CUDA_DEVICE_MAX_CONNECTIONS", "PYTORCH_CUDA_ALLOC_CONF", "NCCL_GRAPH_REGISTER")
TRANSFORMER_ENGINE = "2.14.0"


def main(checkout: str) -> None:
    sys.path.insert(0, checkout)
    if not hasattr(typing, "override"):  # Python 3.11
        typing.override = lambda function: function  # type: ignore[attr-defined]
    with contextlib.redirect_stdout(io.StringIO()):
        read = _reader()
        found = [read(**case) for case in json.load(sys.stdin)]
    json.dump(found, sys.stdout)


def _reader() -> Any:
    import megatron.core.utils as utils  # type: ignore[import-not-found]
    import torch
    from packaging.version import Version

    utils._te_version = Version(TRANSFORMER_ENGINE)
    import megatron.core.models.common.embeddings.rope_utils as rope  # type: ignore[import-not-found]
    import megatron.core.parallel_state as ranks  # type: ignore[import-not-found]
    import megatron.core.transformer.moe.moe_utils as experts  # type: ignore[import-not-found]
    import megatron.core.transformer.transformer_config as configuration  # type: ignore[import-not-found]
    import megatron.training.arguments as arguments  # type: ignore[import-not-found]
    from megatron.core.transformer.transformer_block import (  # type: ignore[import-not-found]
        get_num_layers_to_build,
    )

    for module in (rope, experts):
        for name in vars(module):
            if name.startswith("fused_") and getattr(module, name) is None:
                setattr(module, name, object())
    configuration._validate_dsa_kernel_backend_dependencies = lambda *_: None
    arguments._print_args = lambda *_: None
    place = {"stage": 0, "chunks": None}
    ranks.get_pipeline_model_parallel_rank = lambda: place["stage"]
    ranks.get_virtual_pipeline_model_parallel_world_size = lambda: place["chunks"]

    def layers(config: Any, stages: int, chunks: int) -> list[int]:
        """Of each piece of the model, in its order."""
        place["chunks"] = chunks if chunks > 1 else None
        found = []
        for chunk in range(chunks):
            for stage in range(stages):
                place["stage"] = stage
                which = chunk if chunks > 1 else None
                found.append(get_num_layers_to_build(config, vp_stage=which, pp_rank=stage))
        return found

    def read(text: str, world: int, capability: int) -> dict[str, Any]:
        torch.cuda.get_device_capability = lambda *_: (capability, 0)
        torch.cuda.get_device_properties = lambda *_: type("Gpu", (), {"major": capability, "minor": 0})
        for name in VARIABLES:
            os.environ.pop(name, None)
        os.environ["WORLD_SIZE"] = str(world)
        for line in text.splitlines():
            _, exported, assigned = line.partition("export ")
            if line.startswith("#") and exported and not ("before Blackwell" in line and capability >= 10):
                os.environ.update(word.split("=", 1) for word in assigned.split() if "=" in word)
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        sys.argv = ["pretrain_gpt.py", *(word for line in lines for word in shlex.split(line))]
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                args = arguments.parse_args()
                arguments.validate_args(args, {})
                config = arguments.core_transformer_config_from_args(args)
        except (Exception, SystemExit) as no:
            return {"refused": f"{type(no).__name__}: {no} {said.getvalue()[-300:]}"}
        chunks = args.virtual_pipeline_model_parallel_size or 1
        stages = args.pipeline_model_parallel_size
        return {
            "tensor": args.tensor_model_parallel_size,
            "pipeline": stages,
            "virtual_pipeline": chunks,
            "context": args.context_parallel_size,
            "expert": args.expert_model_parallel_size,
            "data": args.data_parallel_size,
            "sequence_parallel": args.sequence_parallel,
            "recompute": config.recompute_granularity or "none",
            "layers": layers(config, stages, chunks),
        }

    return read


if __name__ == "__main__":
    main(sys.argv[1])
