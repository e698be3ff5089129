"""The part of a study file about recommendation models: the classical contrast to transformers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright.spec.dataset import Data
from railwright.spec.quantity import Size
from railwright.spec.section import Name, Section


class RecommendationJob(Section):
    """Training of a deep-learning recommendation model: tables over GPUs, MLPs data-parallel."""

    kind: Literal["recommendation"] = Field(
        default="recommendation", description="recommendation: embedding tables and MLPs, no transformer"
    )
    name: Name = Field(description="what to call the job, e.g. 'ranking'")
    model: str = Field(description="bundled name ('dlrm-dcnv2') or path of a YAML file of the same fields")
    gpus: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="GPUs it takes, from the first, whole servers; default: all"
    )
    global_batch: Annotated[int, Field(gt=0)] = Field(description="samples per step")
    samples: Annotated[float, Field(gt=0)] = Field(description="sample budget, e.g. 4.2e9")
    dtype: Literal["bf16", "fp16"] = Field(
        default="bf16", description="type of products and of embeddings on the wire"
    )
    table_dtype: Literal["fp32", "fp16"] = Field(default="fp32", description="type the tables are kept in")
    optimizer: Literal["adagrad", "rowwise-adagrad", "sgd"] = Field(
        default="adagrad", description="of the tables: state for every number, for every row, or none"
    )
    sharding: Literal["auto", "table-wise", "column-wise", "row-wise", "table-row-wise"] = Field(
        default="auto",
        description="table-wise: a table on one GPU; column-wise: its columns over `column_shards` GPUs; "
        "row-wise: its rows over all GPUs; table-row-wise: its rows over the GPUs of one server; "
        "auto: the faster of table-row-wise and table-wise, tables with many lookups in pieces or whole",
    )
    column_shards: Annotated[int, Field(gt=0)] = Field(
        default=4, description="column-wise: pieces of each table"
    )
    replicate_below: Size = Field(
        default=0.0, description="tables up to this size are on every GPU, e.g. '16 MiB'; 0 B: none"
    )
    data: Data = Data()
    overlap: bool = Field(
        default=True,
        description="exchanges run beside the MLPs, and the next batch's indices beside this one",
    )
