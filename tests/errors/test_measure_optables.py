"""Op tables that are absent, damaged or of something else: one clear sentence, and no file."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from optables_package import GPU, install, parquet, products, write
from railwright.catalog import load_catalog
from railwright.cli.main import app
from railwright.errors import PlanError, RailwrightError
from railwright.measure.optables.package import installed
from railwright.measure.optables.source import read_source
from railwright.serving.kernels.constants import kernels_of
from railwright.serving.kernels.measured import FORM, read_kernels
from railwright.spec import load_study

PRODUCTS = "h100_sxm/gemm/vllm/0.30.0/gemm_perf.parquet"
ROW = {
    "fixed": 4e-6, "compute": 0.7, "memory": 0.8, "depth": 100.0, "square": 0.9, "small": 0.8, "even": 0.3,
    "error": 5.0, "near": 4.0, "table": "vllm/0.30.0",
    "points": {"scale": 1.0, "configs": [[4096, 4096]], "first": [1, 2], "second": [1],
               "microseconds": [[[15.0], [16.0]]]},
}  # fmt: skip
SMALL = {
    "form": FORM, "gpu": "h100-sxm", "engine": "vllm", "version": "0.30.0",
    "package": {"name": "aiconfigurator-core", "version": "0.12.9", "system": "h100_sxm"},
    "speeds": {"peak": 989e12, "bandwidth": 3.35e12, "sms": 132},
    "rows": {"gemm": {"bf16": ROW}, "attention": {}, "experts": {},
             "all_reduce": {"vllm": {"8": {"bytes": [2048, 4096], "seconds": [5e-6, 6e-6]}}}},
}  # fmt: skip


POINTS = ROW["points"]


def rows(**changes: object) -> dict[str, object]:
    """Changes of the file that change some of its rows."""
    return {"rows": {**SMALL["rows"], **changes}}


def product(**changes: object) -> dict[str, object]:
    """Changes of the file that change its product."""
    return rows(gemm={"bf16": {**ROW, **changes}})


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of a made-up package's tables."""
    parquet()
    return install(tmp_path / "packages", monkeypatch)


def small(folder: Path, **changes: object) -> str:
    """A file of one product, with some of its fields changed."""
    path = folder / "small.kernels.json"
    path.write_text(json.dumps({**SMALL, **changes}), encoding="utf-8")
    return str(path)


def test_without_the_package_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    for command in (["kernels"], ["kernels", "h100-sxm"]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 2
        assert "pip install 'railwright[kernels]'" in done.output
        assert "Traceback" not in done.output


def test_without_pyarrow_the_same_line(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(RailwrightError, match=r"pyarrow is not installed here; `pip install 'railwri"):
        installed()


def test_a_package_laid_out_otherwise(data: Path) -> None:
    data.rename(data.parent / "tables")
    done = CliRunner().invoke(app, ["kernels", "h100-sxm"])
    assert (done.exit_code, "its layout has changed" in done.output) == (2, True), done.output


def test_a_table_that_is_cut_short_or_of_other_columns(data: Path, tmp_path: Path) -> None:
    whole = (data / PRODUCTS).read_bytes()
    (data / PRODUCTS).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RailwrightError, match=r"gemm_perf\.parquet' cannot be read .* reinstall it"):
        read_source(installed(), GPU, "vllm")
    columns = dict(products())
    write(data / PRODUCTS, {("rows" if c == "m" else c): v for c, v in columns.items()})
    with pytest.raises(RailwrightError, match=r"has no column 'm', which those of 0\.12 have"):
        read_source(installed(), GPU, "vllm")
    write(data / PRODUCTS, {**columns, "latency": -columns["latency"]})
    with pytest.raises(RailwrightError, match="rows without a time"):
        read_source(installed(), GPU, "vllm")
    out = tmp_path / "out.json"
    assert CliRunner().invoke(app, ["kernels", "h100-sxm", "--out", str(out)]).exit_code == 2
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["h100-sxm", "--engine", "vlm"], "no kernels of 'vlm'; did you mean 'vllm'"),
        (
            ["h100-sxm", "--engine", "sglang"],
            "no tables of sglang for h100-sxm ('h100_sxm'); it has those of v",
        ),
        (["h100-pcie"], "has no tables of vllm for h100-pcie ('h100_pcie'); it has none of any engine"),
        (["h100-sxm", "--version", "0.1"], "no tables of vllm 0.1 for h100-sxm; it has 0.29.0, 0.30.0"),
        (["h20"], "aiconfigurator-core measures no 'h20'"),
        (["h100-smx"], "h100-sxm"),
    ],
)
def test_what_the_package_does_not_have(data: Path, arguments: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["kernels", *arguments])
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


def test_a_users_file_is_left_as_it_is(data: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.json"
    mine.write_text("a user's own notes\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["kernels", "h100-sxm", "--out", str(mine)])
    assert (done.exit_code, "is not overwritten" in done.output) == (2, True)
    assert mine.read_text(encoding="utf-8") == "a user's own notes\n"


def test_the_listing_names_every_folder(data: Path) -> None:
    done = CliRunner().invoke(app, ["kernels"])
    assert done.exit_code == 0, done.output
    assert "aiconfigurator-core 0.12.9" in done.output
    assert "h100-pcie" in done.output
    assert "0.30.0 (0.29.0)" in done.output


def test_a_file_of_another_gpu_or_engine(tmp_path: Path) -> None:
    file = small(tmp_path)
    kernels_of(GPU, "vllm", file)
    with pytest.raises(PlanError, match=r"chat: kernels: .* measured on h100-sxm with vllm, .* on b200-sxm"):
        kernels_of(load_catalog().gpus["b200-sxm"], "vllm", file, "chat")
    with pytest.raises(PlanError, match=r"with sglang's kernels; write one by `railwright kernels h100-sxm"):
        kernels_of(GPU, "sglang", file, "chat")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"form": "railwright kernels 9"}, "form: is not 'railwright kernels 1'"),
        ({"speeds": {}}, "KeyError: 'peak'"),
        ({"rows": {**SMALL["rows"], "gemm": {"bf16": {**ROW, "fixed": -1.0}}}}, "fixed is -1.0"),
        ({"rows": {**SMALL["rows"], "gemm": {"bf16": {**ROW, "compute": "fast"}}}}, "ValueError"),
        (
            {"rows": {**SMALL["rows"], "all_reduce": {"vllm": {"8": {"bytes": [1], "seconds": [1]}}}}},
            "all-red",
        ),
        (
            {
                "rows": {
                    **SMALL["rows"],
                    "gemm": {"bf16": {**ROW, "points": {**ROW["points"], "first": [2, 1]}}},
                }
            },
            "axis of points does not rise",
        ),
        (product(points={**POINTS, "first": [2, 1]}), "axis of points does not rise"),
        (product(points={**POINTS, "first": [1]}), "points do not fit their axes"),
        (product(points={**POINTS, "microseconds": [[[15.0], [0.0]]]}), "points are no times"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    with pytest.raises(RailwrightError) as told:
        kernels_of(GPU, "vllm", small(tmp_path, **changes)).gemm("bf16")
    assert said in str(told.value)
    assert "write it anew by `railwright kernels`" in str(told.value)


def test_a_file_that_cannot_be_read_or_is_cut_short(tmp_path: Path) -> None:
    with pytest.raises(RailwrightError, match=r"cannot be read \(No such file or directory\)"):
        read_kernels(str(tmp_path / "absent.json"))
    path = Path(small(tmp_path))
    path.write_text(path.read_text(encoding="utf-8")[:200], encoding="utf-8")
    with pytest.raises(RailwrightError, match="is not JSON, or not all of it is there"):
        read_kernels(str(path))


def test_serving_needs_nothing_of_the_extra(tmp_path: Path) -> None:
    """A file is used without pyarrow, and without the readers of tables."""
    file = small(tmp_path)
    program = (
        "import sys; from railwright.catalog import load_catalog; "
        "from railwright.serving.kernels.constants import kernels_of; "
        f"kernels_of(load_catalog().gpus['h100-sxm'], 'vllm', {file!r}).gemm('bf16'); "
        "print([m for m in ('pyarrow', 'scipy', 'railwright.measure.optables') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


STUDY = """
railwright: 1
name: One server
cluster: {servers: 1, server: dgx-h100, compute: {family: single-switch, switch: qm9700}}
serving:
  - {name: chat, model: ours.json, kernels: small.kernels.json, client: {concurrency: 4}}
variants:
  - {name: other, set: {serving.chat.kernels: other, serving.chat.engine: sglang-2025}}
"""


def test_files_of_a_serving_job_are_beside_its_study(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    study = load_study(tmp_path / "study.yaml")
    job = study.serving[0]
    assert (job.kernels, job.model) == (str(tmp_path / "small.kernels.json"), str(tmp_path / "ours.json"))
    assert study.variants[0].set == {
        "serving.chat.kernels": str(tmp_path / "other"),
        "serving.chat.engine": "sglang-2025",
    }


def test_a_gpu_without_shipped_rows_takes_its_own_for_its_kin(tmp_path: Path) -> None:
    """B300: shipped fits are the B200's; a file replaces the kernels that it has, and no other."""
    gpu = load_catalog().gpus["b300-sxm"]
    own = kernels_of(gpu, "vllm", small(tmp_path, gpu="b300-sxm"))
    shipped = kernels_of(gpu, "vllm")
    assert (shipped.row, shipped.exact, own.exact) == ("b200", False, True)
    assert own.gemm("bf16")[0].fixed == ROW["fixed"] != shipped.gemm("bf16")[0].fixed
    assert own.gemm("fp8")[0] == shipped.gemm("fp8")[0]
    assert own.attention("decode", "bf16") == shipped.attention("decode", "bf16")
