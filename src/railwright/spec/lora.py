"""A training job's section `lora`: adapters beside a frozen model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright.spec.section import Section

LoraTarget = Literal["qkv", "attention output", "mlp up", "mlp down"]


class Lora(Section):
    """Low-rank adapters: the model is frozen, and only two thin matrices beside each target are trained."""

    rank: Annotated[int, Field(gt=0)] = Field(description="inner width of the adapters")
    targets: tuple[LoraTarget, ...] = Field(
        min_length=1,
        default=("qkv", "attention output", "mlp up", "mlp down"),
        description="products that get an adapter (mlp: dense and shared ones, not routed experts)",
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0,
        description="share of an adapter's input, or of its result, that dropout zeroes (PEFT's "
        "lora_dropout, NeMo's and torchtune's dropout)",
    )
    dropout_position: Literal["pre", "post"] = Field(
        default="pre",
        description="what dropout falls on: the adapter's input, or its result (NeMo, Megatron-Bridge)",
    )
    frozen_dtype: Literal["fp32", "bf16", "nf4"] | None = Field(
        default=None,
        description="type of frozen weights: nf4, those of layers in 4 bits with scales (QLoRA; software "
        "fsdp-… or deepspeed-…, whatever zero); fp32 or bf16, of FSDP's shards, bf16 as torchtune and "
        "Hugging Face's Trainer hold them; default: as the software loads weights, fp32 in FSDP's shards, "
        "else 16 bits",
    )
    inputs_stay: bool = Field(
        default=False,
        description="inputs of layers that are computed again, and their gradients, stay until a backward "
        "pass ends: PyTorch's FSDP of version 1 (Accelerate's default) with reentrant checkpoints "
        "(gradient_checkpointing before transformers 5)",
    )

    @property
    def drops_input(self) -> bool:
        """Whether adapters read a copy of their input, of which dropout left parts out."""
        return self.dropout > 0 and self.dropout_position == "pre"

    @property
    def drops_result(self) -> bool:
        """Whether dropout falls on what adapters add."""
        return self.dropout > 0 and self.dropout_position == "post"
