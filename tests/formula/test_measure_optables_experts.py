"""Routed experts in op tables: kernels that no engine runs so, types of an older version, few rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import optables_package as package
from optables_package import GPU, Table, install, parquet, write
from railwright.measure.optables.package import installed
from railwright.measure.optables.source import Source, read_source

UNTUNED = "vllm_modeloptfp8moe_flashinfer_cutlass_flashinferexperts"


def read(folder: Path, monkeypatch: pytest.MonkeyPatch, older: Table, newer: Table) -> Source:
    """What is read of vLLM 0.30.0, whose experts and those of the version before are given."""
    parquet()
    data = install(folder, monkeypatch) / "h100_sxm" / "moe" / "vllm"
    write(data / "0.29.0" / "moe_perf.parquet", older)
    write(data / "0.30.0" / "moe_perf.parquet", newer)
    return read_source(installed(), GPU, "vllm")


def experts(dtype: str, kernel: str = "triton", times: float = 1.0) -> Table:
    made = package.experts()
    rows = len(made["moe_dtype"])
    return {
        **made,
        "moe_dtype": [dtype] * rows,
        "kernel_source": [kernel] * rows,
        "latency": made["latency"] * times,
    }


def both(one: Table, other: Table) -> Table:
    return {name: np.concatenate((one[name], other[name])) for name in one}


def tables_of(source: Source) -> dict[str, str]:
    """Type -> the table its experts are fitted to."""
    return {line.found.path[2]: line.found.table for line in source.lines if line.found.path[0] == "experts"}


def test_a_kernel_that_the_engine_tunes_is_not_taken_untuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = both(experts("bfloat16"), experts("fp8", UNTUNED, 4.0))
    source = read(tmp_path, monkeypatch, experts("fp8"), newer)
    assert tables_of(source) == {"bf16": "vllm/0.30.0", "fp8": "vllm/0.29.0"}
    line = next(line for line in source.lines if line.found.path == ("experts", "vllm", "fp8"))
    assert line.found.constants["memory"] == pytest.approx(
        package.EXPERTS.memory / 2, rel=0.1
    )  # made with 2 bytes


def test_without_another_table_the_engine_has_no_row_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = both(experts("bfloat16"), experts("fp8", UNTUNED))
    assert tables_of(read(tmp_path, monkeypatch, experts("bfloat16"), newer)) == {"bf16": "vllm/0.30.0"}


def test_rows_of_prompts_alone_say_nothing_of_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = experts("int4_wo")
    keep = np.asarray(many["num_tokens"]) > 64
    newer = both(experts("bfloat16"), {name: np.asarray(many[name])[keep] for name in many})
    assert "int4" not in tables_of(read(tmp_path, monkeypatch, experts("bfloat16"), newer))
