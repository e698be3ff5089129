"""The host beside the GPU: what launching costs, and when the GPU waits for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.errors import PlanError
from railwright.model import Cut, layer_operators, load_model
from railwright.model.operators.eager import Part
from railwright.spec.lora import Lora
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.lanes.tasks import Task, run
from railwright.training.passes.chain import Chain
from railwright.training.software.constants import constant
from railwright.training.software.eras import Pace
from railwright.training.software.host import LaunchTimes, launch_times, launching
from railwright.training.software.lora import with_adapters
from training_cases import DENSE, MOE, changed, job, machine, priced

OPERATION, MODULE, EXPERT = (constant(f"host_{name}_seconds") for name in ("operation", "module", "expert"))
H100 = machine().gpu


def test_a_dense_layer_is_its_calls_and_operations() -> None:
    # forward: 4 products and attention; 2 norms, rotary, 2 residuals, activation
    known = launch_times(layer_operators(DENSE, "dense", 1024, 1024), H100)
    assert known.forward == pytest.approx(5 * MODULE + 6 * OPERATION)
    # backward: the same again, and 4 weight gradients
    assert known.backward == pytest.approx(5 * MODULE + 6 * OPERATION + 4 * OPERATION)


@pytest.mark.parametrize("window", [64, 512, 1024])
def test_a_layer_with_a_window_calls_attention_once(window: int) -> None:
    """Of layers with and without a window the mean one has a share of each kernel, and one call."""
    arch = replace(DENSE, sliding_window=window, full_every=2)
    whole, mixed = (launch_times(layer_operators(a, "dense", 1024, 1024), H100) for a in (DENSE, arch))
    assert mixed == whole


def test_adapters_are_plain_operations_of_pytorch() -> None:
    """Beside each of 4 products two thin ones, a scaling and a sum: no module of Transformer Engine's.

    Of the gradients of a thin product one call makes both, and autograd scales one and adds another up;
    frozen weights have none.
    """
    plain = layer_operators(DENSE, "dense", 1024, 1024)
    adapted = with_adapters(plain, changed(job(), lora=Lora(rank=16)), "bf16")
    for factor in (1.0, 8.0):
        before, after = launch_times(plain, H100, factor), launch_times(adapted, H100, factor)
        assert after.forward - before.forward == pytest.approx(4 * (2 * factor + 2) * OPERATION)
        assert after.input - before.input == pytest.approx(4 * (2 * factor + 2) * OPERATION)
        assert after.weight == pytest.approx(4 * 2 * OPERATION)
    # a compiled program has one kernel for scaling and sum
    joined = with_adapters(plain, changed(job(), lora=Lora(rank=16)), "bf16", compiled=True)
    assert launch_times(joined, H100, launcher="native").forward == pytest.approx((11 + 4 * 3) * 1.3e-6)


def test_dropout_of_adapters_is_a_module_forward_and_an_operation_of_autograd_backward() -> None:
    plain = layer_operators(DENSE, "dense", 1024, 1024)
    without, with_it = (
        with_adapters(plain, changed(job(), lora=Lora(rank=16, dropout=share)), "bf16")
        for share in (0.0, 0.1)
    )
    for factor in (1.0, 8.0):
        before, after = launch_times(without, H100, factor), launch_times(with_it, H100, factor)
        assert after.forward - before.forward == pytest.approx(4 * factor * OPERATION)
        assert after.input - before.input == pytest.approx(4 * OPERATION)


def test_adapters_bind_the_host_no_more_than_all_weights_do() -> None:
    """Llama-3-70B over eight tensor-parallel ranks: 14.4 s at the price of modules, 8.9 s of all weights."""
    arch = load_model("llama-3-70b")
    asked = job(gpus=64, sequence=4096, batch=128, tensor=8, pipeline=2, sequence_parallel=True)
    whole, thin = (
        simulate(one, arch, machine(8), must_fit=False).step_time
        for one in (asked, changed(asked, lora=Lora(rank=16)))
    )
    assert thin < 1.15 * whole


@pytest.mark.parametrize("factor", [1.0, 4.0, 8.0, 20.0])
@pytest.mark.parametrize("part", ["activation", "norm", "rotary"])
def test_what_runs_one_kernel_per_operation_is_never_launched_faster(part: Part, factor: float) -> None:
    """The gradient of a bias is summed up behind a fused activation without another call from Python, as it
    is behind one that is not: megatron-2022 with `unfused: [activation]` took 0.7 % less."""
    for attention in ("flash", "unfused"):  # software with the latter sums up biases by kernels of their own
        layers = (
            layer_operators(DENSE, "dense", 1024, 1024, Cut(attention=attention, unfused=parts))  # type: ignore[arg-type]
            for parts in ((), (part,))
        )
        fused, apart = (launch_times(one, H100, factor) for one in layers)
        assert apart.forward >= fused.forward
        assert apart.backward >= fused.backward


def test_one_norm_for_both_blocks_is_launched_once() -> None:
    arch = replace(DENSE, parallel_blocks=True, norms_per_layer=1)
    layer = layer_operators(arch, "dense", 1024, 1024)
    assert launch_times(layer, H100).forward == pytest.approx(5 * MODULE + 5 * OPERATION)
    # attention's graph holds it; without a norm of its own the MLP begins with its first product
    mlp = launch_times(layer, H100, graphs=("attention",)).forward
    assert mlp == pytest.approx(2 * MODULE + 2 * OPERATION)


def test_each_expert_costs_its_own_launch() -> None:
    few, many = (
        launch_times(layer_operators(replace(MOE, experts=count), "moe", 4096, 1024), H100)
        for count in (8, 16)
    )
    assert many.forward - few.forward == pytest.approx(2 * 8 * EXPERT)
    assert many.backward - few.backward == pytest.approx(4 * 8 * EXPERT)


def test_grace_is_slower_by_the_measured_ratio() -> None:
    layer = layer_operators(MOE, "moe", 4096, 1024)
    grace = launch_times(layer, replace(H100, name="gb200-sxm"))
    assert grace.forward == pytest.approx(37.08 / 13.48 * launch_times(layer, H100).forward, rel=1e-3)


def test_compiled_layers_are_launched_at_a_kernel_s_price_and_no_python_s() -> None:
    """tritonbench pull request 1016: 1.3, 9 and, for the call with its guards, 33 - 9 us."""
    layer = layer_operators(DENSE, "dense", 1024, 1024)
    native, slower = (launch_times(layer, H100, factor, launcher="native") for factor in (1.0, 8.0))
    assert native == slower
    assert native.forward == pytest.approx(11 * 1.3e-6)
    assert native.collective == pytest.approx(1.3e-6)
    compiled = launch_times(layer, H100, 8.0, launcher="inductor")
    assert compiled.forward == pytest.approx(11 * 9e-6 + 24e-6)
    assert compiled.backward == pytest.approx(15 * 9e-6)
    assert compiled.collective == pytest.approx(8 * OPERATION)


@pytest.mark.parametrize("software", ["xla-2025", "fsdp-2025"])
def test_a_job_that_launches_bind_is_shorter_where_its_layers_are_compiled(software) -> None:
    bound = changed(job(), seq=256, micro_batch=1)
    eager = simulate(changed(bound, software="nemo-2024"), DENSE, machine())
    assert eager.exposed("host") > 0.3 * eager.step_time
    assert simulate(changed(bound, software=software), DENSE, machine()).exposed(
        "host"
    ) < 0.5 * eager.exposed("host")


def test_no_launch_is_shown_where_compute_hides_it() -> None:
    known, tasks = LaunchTimes(1.0, 0.6, 0.4, 0.1), [Task("compute", "w", "mlp", 2.0)]
    assert launching(known, 1.5, tasks) == 0.0
    assert launching(known, 2.5, tasks) == 2.5
    # a collective is launched too, and does not hide launches from the test
    assert launching(known, 1.95, [*tasks, Task("tp", "r", "all_reduce", 9.0, size=1.0)]) == pytest.approx(
        2.05
    )


def test_a_layer_takes_its_kernels_or_its_launches() -> None:
    chain = Chain()
    chain.compute("a", "mlp", 1.0)
    chain.flush()
    before = chain.tail
    chain.compute("b", "mlp", 1.0)
    chain.launched(3.0, before)
    chain.compute("c", "mlp", 1.0)
    chain.flush()
    done = run(chain.tasks, 1.5)
    assert done.duration == pytest.approx(1.0 + 3.0 + 1.0)
    assert done.exposed == pytest.approx({"compute": 3.0, "host": 2.0})


def test_experts_wait_per_layer_and_dense_models_over_both_passes() -> None:
    # kernels that take no time: what is left is launching
    free = {"predict": priced(1e18, 0.0), "kernel": lambda operator: 1e-12, "pace": Pace()}
    one = job(batch=32, overlap=Overlap(dp=False))
    dense = simulate(one, DENSE, machine(4), **free)  # type: ignore[arg-type]
    known = launch_times(layer_operators(DENSE, "dense", 1024, 1024), H100)
    assert dense.exposed("host") == pytest.approx(8 * (known.forward + known.backward), rel=1e-3)
    wanted = job(batch=32, expert=8, overlap=Overlap(dp=False))
    known = launch_times(layer_operators(MOE, "moe", 1024, 1024, Cut(ep=8)), H100)
    moe = simulate(wanted, MOE, machine(4), **free)  # type: ignore[arg-type]
    # four all-to-alls and the gather of counts
    launches = 8 * (known.forward + known.backward + 5 * OPERATION)
    assert moe.exposed("host") == pytest.approx(launches, rel=1e-3)


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-v"])
@pytest.mark.parametrize(("arch", "cut"), [(DENSE, {}), (MOE, {"expert": 8}), (MOE, {"recompute": "full"})])
def test_a_split_pass_waits_for_the_launches_of_a_whole_one(arch, cut, schedule) -> None:  # type: ignore[no-untyped-def]
    free = {"predict": priced(1e18, 0.0), "kernel": lambda operator: 1e-12, "pace": Pace()}
    whole, split = (
        simulate(job(batch=96, overlap=Overlap(dp=False), schedule=one, **cut), arch, machine(4), **free)
        for one in ("1f1b", schedule)
    )
    assert split.exposed("host") == pytest.approx(whole.exposed("host"), rel=1e-6)


@pytest.mark.parametrize(
    "cut", [{"schedule": "zb-h1"}, {"layers_per_stage": (1, 3, 3, 1)}, {"virtual_pipeline": 2}], ids=str
)
def test_launches_are_shared_out_whatever_is_sharded(cut: dict[str, object]) -> None:
    """On 4 GPUs in a pipeline no two ranks share anything: zero: 2 is zero: 1, in launches too."""
    one, two = (
        simulate(job(gpus=4, pipeline=4, batch=16, sequence=512, zero=zero, **cut), DENSE, machine(1))
        for zero in (1, 2)
    )
    assert one.launch_share > 0.5
    assert two.step_time == pytest.approx(one.step_time, rel=1e-12)
    assert [share.exposed for share in two.shares] == pytest.approx([share.exposed for share in one.shares])


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_kernels_that_take_no_time_leave_no_more_to_wait_for(schedule: str) -> None:
    """Where launches bind under zero: 2, forward passes are not shorter than what is launched for them, so a
    pipeline fills no faster with slow kernels than with fast ones."""
    asked = job(gpus=16, pipeline=4, batch=32, sequence=512, zero=2, schedule=schedule)
    usual = simulate(asked, DENSE, machine(2))
    free = simulate(asked, DENSE, machine(2), kernel=lambda operator: 0.0)
    assert usual.launch_share > 0.3
    assert free.step_time <= usual.step_time


@pytest.mark.parametrize("rate", [80e9, 320e9])
def test_the_host_launches_on_while_parameters_are_gathered(rate: float) -> None:
    # a slow host, and forward passes that wait for gathers: slower kernels never make a step shorter
    def step(kernel: float) -> float:
        setting = {"predict": priced(rate, 0.0), "kernel": lambda operator: kernel, "pace": Pace(host=8.0)}
        return simulate(job(batch=256, zero=3), DENSE, machine(4), **setting).step_time  # type: ignore[arg-type]

    times = [step(kernel) for kernel in (1e-12, 2e-5, 4e-5, 6e-5, 8e-5)]
    assert times == sorted(times)
    # the least of them is what launching takes
    known = launch_times(layer_operators(DENSE, "dense", 1024, 1024), H100, 8.0)
    assert times[0] >= 8 * 8 * (known.forward + known.backward)


@pytest.mark.parametrize(
    ("micro_batch", "layers", "waits"), [(1, None, False), (2, None, False), (4, 6, True)]
)
@pytest.mark.parametrize("seconds", [0.0, 4e-6])
def test_the_host_launches_on_while_activations_are_copied(
    micro_batch: int, layers: int | None, waits: bool, seconds: float
) -> None:
    """Copies that the launches of both passes outlast cost nothing: what they add to one the other waits
    less, and what a pass's own launches outlast adds nothing."""
    plain = job(batch=128, micro_batch=micro_batch)
    away = {"offload": ("activations",), "offload_layers": layers}
    copied = changed(plain, layout=plain.layout.model_copy(update=away))
    steps = [
        simulate(one, DENSE, machine(), predict=priced(0.0), kernel=lambda _: seconds, pace=Pace(host=7.94))
        for one in (plain, copied)
    ]
    waited = [step.exposed("host") for step in steps]
    if waits:
        assert waited[1] < waited[0], "the forward pass waits for its copies"
    else:
        assert waited[1] == pytest.approx(waited[0])
    assert steps[1].step_time == pytest.approx(steps[0].step_time)


def test_weight_gradients_are_one_operation_a_product() -> None:
    known = launch_times(layer_operators(DENSE, "dense", 1024, 1024), H100)
    assert known.weight == pytest.approx(4 * OPERATION)
    assert known.input + known.weight == pytest.approx(known.backward)


def test_graphs_take_launches_from_the_host() -> None:
    layer = layer_operators(MOE, "moe", 4096, 1024)
    plain, step = launch_times(layer, H100), launch_times(layer, H100, graphs=("step",))
    assert (step.forward, step.backward, step.collective) == (0.0, 0.0, 0.0)
    attention, router = (launch_times(layer, H100, graphs=(part,)) for part in ("attention", "router"))
    both = launch_times(layer, H100, graphs=("attention", "router"))
    saved = [plain.forward - one.forward for one in (attention, router, both)]
    assert saved[0] > 0 < saved[1]
    assert saved[2] == pytest.approx(saved[0] + saved[1])
    # experts have no mlp that a graph could hold; a dense layer is attention and mlp
    assert launch_times(layer, H100, graphs=("mlp",)) == plain
    dense = launch_times(layer_operators(DENSE, "dense", 1024, 1024), H100, graphs=("attention", "mlp"))
    assert (dense.forward, dense.backward) == (0.0, 0.0)
    # nor a dense layer a router, whose graph begins with the norm that both have
    dense = layer_operators(DENSE, "dense", 1024, 1024)
    assert launch_times(dense, H100, graphs=("router",)) == launch_times(dense, H100)


def test_long_kernels_leave_no_trace_of_the_host() -> None:
    step = simulate(job(), DENSE, machine(4), predict=priced(50e9), kernel=lambda operator: 1e-3)
    assert step.exposed("host") == 0.0
    assert all(e.lane != "host" for e in step.timeline.events)


def blocked(**what: object) -> TrainingJob:
    return job(**what).model_copy(update={"launch_blocking": True})  # type: ignore[arg-type]


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_where_launches_block_every_call_is_waited_for(recompute: str) -> None:
    # kernels so long that they hide all launches otherwise; 32 GPUs, each a replica with 4 microbatches
    cut = {"recompute": recompute, "overlap": Overlap(dp=False), "batch": 128}
    times = {"predict": priced(50e9), "kernel": lambda operator: 1e-3, "pace": Pace()}
    known = launch_times(layer_operators(DENSE, "dense", 1024, 1024), H100)
    ahead, waited = (
        simulate(one(**cut), DENSE, machine(4), **times)  # type: ignore[arg-type,operator]
        for one in (job, blocked)
    )
    again = known.forward if recompute == "full" else 0.0
    assert ahead.exposed("host") == 0.0
    assert waited.exposed("host") == pytest.approx(4 * 8 * (known.forward + known.backward + again))
    assert waited.step_time - ahead.step_time == pytest.approx(waited.exposed("host"))


def test_a_host_that_waits_hides_nothing() -> None:
    with pytest.raises(PlanError, match=r"launch_blocking.* set overlap\.dp to false"):
        simulate(blocked(), DENSE, machine(4), predict=priced(50e9))
    # one data-parallel rank of 8 context-parallel ones, which reduce gradients too
    with pytest.raises(PlanError, match=r"set overlap\.cp, overlap\.dp to false"):
        simulate(blocked(context=32, sequence=32768), DENSE, machine(4), predict=priced(50e9))
    held = blocked(pipeline=4, schedule="dualpipe", overlap=Overlap(dp=False, pp=False))
    with pytest.raises(PlanError, match="dualpipe runs two passes beside each other"):
        simulate(held, DENSE, machine(4), predict=priced(50e9))
