"""The study file's section `nccl`: NCCL's settings, by what they do."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright.spec.section import Section


class Nccl(Section):
    """NCCL's settings, by what they do."""

    pxn: bool = Field(default=True, description="relay over NVLink to the GPU on the destination's rail")
    algorithm: Literal["auto", "ring", "tree", "nvls", "nvlstree", "collnet"] = Field(
        default="auto", description="NCCL_ALGO; auto lets NCCL's tuner choose per size"
    )
    protocol: Literal["auto", "ll", "ll128", "simple"] = Field(
        default="auto", description="NCCL_PROTO; auto lets NCCL's tuner choose per size"
    )
    sharp: bool = Field(default=False, description="in-network reduction, where the switch has it")
    min_channels: Annotated[int, Field(gt=0, le=64)] | None = Field(
        default=None, description="NCCL_MIN_NCHANNELS; default: what NCCL's search opens"
    )
    max_channels: Annotated[int, Field(gt=0, le=64)] | None = Field(
        default=None, description="NCCL_MAX_NCHANNELS; default: what NCCL's search opens"
    )
    cross_nic: bool | None = Field(
        default=None, description="NCCL_CROSS_NIC=1: rings change rails between nodes; default: as NCCL does"
    )
    qps_per_connection: Annotated[int, Field(gt=0, le=128)] | None = Field(
        default=None,
        description="NCCL_IB_QPS_PER_CONNECTION: hashed flows of each connection; default: one",
    )
    p2p_net_chunk: Annotated[int, Field(ge=4096)] | None = Field(
        default=None, description="NCCL_P2P_NET_CHUNKSIZE in bytes; default: 131072"
    )
