"""Fine-tuning with frozen weights in 4 bits and in 16, and of all weights, against published runs (rules:
qlora_published).

No factor was fitted to any of them; docs/training/unseen.md says what is known of the misses.
"""

from __future__ import annotations

from statistics import fmean

import pytest

from qlora_published import ANSWER, FMS, FMS_2025, TORCHTUNE, Run, job_of
from railwright.catalog import load_catalog
from railwright.catalog.parts import Catalog
from railwright.collectives import Machine, NcclSettings
from railwright.model import count_parameters, load_model
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.training import simulate
from railwright.training.lanes.result import StepResult
from railwright.training.memory.cached import reserved
from railwright.training.memory.peak import SYSTEM

SERVERS = """
servers:
  2x-rtx-4090: {like: workstation-2x-l40s, gpu: rtx-4090, sources: {"*": "memory, two cards in a tower"}}
"""

PEAKS = {
    "dgx-a100": "a100-sxm-80",
    "dgx-a100-40": "a100-sxm-40",
    "dgx-h100": "h100-sxm",
    "2x-rtx-4090": "rtx-4090",
}

DENSE = [run for run in (*FMS, *ANSWER) if "mixtral" not in run.model and "4090" not in run.server]
EXPERTS = [run for run in FMS if "mixtral" in run.model]
ADA = [run for run in ANSWER if "4090" in run.server]
ALONE = [run for run in FMS if not run.sharded]


class Predicted:
    """Steps as they are predicted, each once."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._machines: dict[str, Machine] = {}
        self._steps: dict[Run, StepResult] = {}

    def machine(self, server: str) -> Machine:
        if server not in self._machines:
            network = ComputeNetwork(family="single-switch", switch="qm9700")
            cluster = Cluster(servers=1, server=server, compute=network)
            self._machines[server] = Machine.of(cluster, self.catalog, NcclSettings())
        return self._machines[server]

    def step(self, run: Run) -> StepResult:
        if run not in self._steps:
            arch, one = load_model(run.model), self.machine(run.server)
            self._steps[run] = simulate(job_of(run), arch, one, must_fit=False)
        return self._steps[run]

    def error(self, run: Run) -> float:
        """Predicted over published time of a step, less one."""
        return self.step(run).step_time * run.tokens_s / (run.micro_batch * job_of(run).sequence) - 1

    def tensors(self, run: Run) -> float:
        """Memory without CUDA's own. [byte]"""
        memory = self.step(run).memory
        return memory.total - memory.parts[SYSTEM]


@pytest.fixture(scope="module")
def predicted(tmp_path_factory: pytest.TempPathFactory) -> Predicted:
    file = tmp_path_factory.mktemp("qlora") / "catalog.yaml"
    file.write_text(SERVERS, encoding="utf-8")
    return Predicted(load_catalog(file))


@pytest.mark.parametrize("run", [*FMS, *ANSWER, *FMS_2025], ids=lambda run: run.name)
def test_rates_are_possible(run: Run) -> None:
    """Forward, again and the gradient of the input, of a weight that trains too: 6 or 8 FLOPs a weight that a
    token meets."""
    weights = count_parameters(load_model(run.model)).active
    peak = load_catalog().gpus[PEAKS[run.server]].peak_flops["bf16"]
    assert 0.2 < (8 if run.full else 6) * weights * run.tokens_s / peak < 0.75


@pytest.mark.parametrize("run", DENSE, ids=lambda run: run.name)
def test_steps_of_dense_models_on_a100_and_h100(run: Run, predicted: Predicted) -> None:
    """14 steps of 7B and 70B, 4 of them with weights in 16 bits: furthest off 15 %."""
    assert abs(predicted.error(run)) < 0.15


def test_they_are_5_percent_off_in_the_mean(predicted: Predicted) -> None:
    errors = [predicted.error(run) for run in DENSE]
    assert fmean(map(abs, errors)) == pytest.approx(0.053, abs=0.004)
    assert fmean(errors) == pytest.approx(-0.021, abs=0.004)


@pytest.mark.parametrize("run", EXPERTS, ids=lambda run: run.name)
def test_steps_with_experts_of_2024_are_too_short(run: Run, predicted: Predicted) -> None:
    """Until release 4.40 transformers made lists of Python's of each expert's rows, and indices of these: on
    one GPU that took a tenth of a step, by the table of 2025; the fewer rows, the more."""
    assert -0.29 < predicted.error(run) < -0.08


LATER = [run for run in FMS_2025 if "mixtral" not in run.model]
LATER_EXPERTS = [run for run in FMS_2025 if "mixtral" in run.model]


def test_dense_steps_of_2025(predicted: Predicted) -> None:
    """14 of 7B and 70B, 4 with all weights, furthest off 12 % (LoRA over two GPUs, too short)."""
    errors = [predicted.error(run) for run in LATER]
    assert max(map(abs, errors)) < 0.12
    assert fmean(map(abs, errors)) == pytest.approx(0.048, abs=0.004)
    assert fmean(errors) == pytest.approx(-0.007, abs=0.004)


@pytest.mark.parametrize("run", LATER_EXPERTS, ids=lambda run: run.name)
def test_steps_with_experts_of_2025(run: Run, predicted: Predicted) -> None:
    """On one GPU within 2 %; under FSDP too short, as those of dense models beside theirs on one GPU."""
    low, high = (-0.18, -0.03) if run.sharded else (0.0, 0.02)
    assert low < predicted.error(run) < high


def test_what_two_gpus_take_more_than_one(predicted: Predicted) -> None:
    """Mistral 7B, in seconds beside what is predicted, all weights too (docs/training/unseen.md)."""
    steps = {
        (run.full, run.nf4, run.sharded, run.micro_batch): run for run in LATER if "mistral" in run.model
    }
    more = []
    for (full, nf4, sharded, batch), two in steps.items():
        if sharded:
            one = steps[full, nf4, False, 2 * batch]
            measured = batch * job_of(two).sequence * (1 / two.tokens_s - 1 / one.tokens_s)
            ours = predicted.step(two).step_time - predicted.step(one).step_time / 2
            more.append(measured - ours)
    assert more == pytest.approx([0.16, 0.13, 0.23, 0.22, 0.38, 0.25], abs=0.006)


def test_what_a_loop_takes_more_than_grouped_products(predicted: Predicted) -> None:
    """1 to 5 % of a step with 8 experts of 1,000 to 8,000 rows: transformers 4 beside 5."""
    errors = []
    for run in LATER_EXPERTS:
        loop = job_of(run)
        grouped = loop.model_copy(update={"unfused": tuple(p for p in loop.unfused if p != "experts")})
        arch, one = load_model(run.model), predicted.machine(run.server)
        seconds = simulate(grouped, arch, one, must_fit=False).step_time
        assert 1.005 < predicted.step(run).step_time / seconds < 1.05
        errors.append((1 + predicted.error(run)) * seconds / predicted.step(run).step_time - 1)
    assert fmean(map(abs, errors)) == pytest.approx(0.083, abs=0.003)
    assert fmean(predicted.error(run) for run in LATER_EXPERTS) == pytest.approx(-0.063, abs=0.004)


@pytest.mark.parametrize("run", ADA, ids=lambda run: run.name)
def test_steps_on_a_4090(run: Run, predicted: Predicted) -> None:
    """As far off as those on A100, with 16 bits and with 4.  When first scored an L40S stood for the kernels
    of a 4090, and they were 38 to 49 % too long; products measured by others have replaced it (9 to 17 %),
    then attention that was."""
    assert 0.045 < predicted.error(run) < 0.15


PAIRS = [
    (four, wide)
    for four in (*FMS, *ANSWER)
    for wide in (*FMS, *ANSWER)
    if four.nf4
    and not wide.nf4
    and (four.source, four.model, four.gpus, four.sharded)
    == (wide.source, wide.model, wide.gpus, wide.sharded)
    and (four.micro_batch == wide.micro_batch or four.source == "answer.ai")
]


@pytest.mark.parametrize(("four", "wide"), PAIRS, ids=lambda run: run.name)
def test_how_much_longer_a_token_takes_than_with_16_bits(four: Run, wide: Run, predicted: Predicted) -> None:
    """Of dense models within 3.2 points, too little where weights do not cross PCIe: published are 3.0 to 5.4
    % more, predicted 0.2 to 3.1.  Experts lose in lists of Python's what gathers in 4 bits gain."""
    ratio = (1 + predicted.error(four)) / (1 + predicted.error(wide))
    if "mixtral" in four.model:
        assert 1.0 < ratio < 1.17
    else:
        assert ratio == pytest.approx(1.0, abs=0.033)


@pytest.mark.parametrize("run", ALONE, ids=lambda run: run.name)
def test_memory_of_one_gpu(run: Run, predicted: Predicted) -> None:
    """Seven peaks of 15 to 63 GiB, with weights in 16 bits and in 4: within 2.5 %."""
    assert predicted.tensors(run) == pytest.approx(run.allocated, rel=0.025)


@pytest.mark.parametrize("run", [run for run in FMS if run.sharded], ids=lambda run: run.name)
def test_memory_under_fsdp(run: Run, predicted: Predicted) -> None:
    """Nine within 6.5 %.  They were up to 24 % too little until inputs of layers were found to stay, with
    their gradients, where FSDP of version 1 shards frozen weights (`inputs_stay`)."""
    assert predicted.tensors(run) == pytest.approx(run.allocated, rel=0.065)


@pytest.mark.parametrize("run", ADA, ids=lambda run: run.name)
def test_segments_on_two_4090(run: Run, predicted: Predicted) -> None:
    """16 % too little to 2 % too much: FSDP1's flat parameters and their copies are not replayed."""
    one = predicted.machine(run.server)
    held = reserved(job_of(run), load_model(run.model), one.network.fabric, predicted.step(run).memory)
    assert held is not None
    assert -0.17 < held.reserved / run.reserved - 1 < 0.02


CHUNKED = [0.08, 0.07, 0.10, 0.37]
"""Errors with torchtune's loss in chunks; with all logits at once they were 0.38, 0.71, 0.15 and 0.35."""


@pytest.mark.parametrize(("run", "error"), [*zip(TORCHTUNE, CHUNKED, strict=True)])
def test_torchtunes_memory(run: Run, error: float, predicted: Predicted) -> None:
    """Its recipes of that commit take CEWithChunkedOutputLoss, of eight chunks, which torch.compile takes
    with the layers; that of 405B has batches of 1 where the table says 2."""
    assert predicted.tensors(run) / run.allocated - 1 == pytest.approx(error, abs=0.01)
