"""What PyTorch's FSDP2 allocates for its units, seen by its profiler on a fake group, beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from railwright.training.layers.stages import shapes_of
from railwright.training.layout.schedule import schedule
from railwright.training.memory.allocator import COMPUTE, Requests
from railwright.training.memory.cached import _stage_plans
from railwright.training.memory.replay_sharded import GATHER, REDUCE, ShardedReplay
from training_cases import DENSE, changed, job

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")

RANKS, WIDTH, IN_LAYER, IN_END = 16, 256, 3, 2
ARCH = DENSE
"""Its parameters are other ones, in as many layers."""

SOFTWARE = {"joined": "fsdp-2024-eager", "apart": "fsdp-2025"}


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield init_device_mesh("cpu", (RANKS,))
    dist.destroy_process_group()


def seen(mesh: Any, units: str) -> list[float]:
    """Sizes of the tensors that come (and minus those that go) in a second step, over one weight's."""
    from torch import nn
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.profiler import ProfilerActivity, profile

    def several(count: int) -> Any:
        return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(count)))

    layers = [several(IN_LAYER) for _ in range(ARCH.layers)]
    net = nn.Sequential(several(IN_END), *layers, several(IN_END))
    how = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}
    # as torchtitan's apply_fsdp in December 2024, and since July 2025
    for layer in layers:
        fully_shard(layer, **how, reshard_after_forward=units == "apart" or layer is not layers[-1])
    if units == "apart":
        fully_shard(net[0], **how, reshard_after_forward=True)
        fully_shard(net[-1], **how, reshard_after_forward=False)
    fully_shard(net, **how)
    rows = torch.randn(2, WIDTH)

    def step() -> None:
        net(rows).sum().backward()
        for weight in net.parameters():
            weight.grad = None

    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    events = sorted(profiled.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    one = 2 * WIDTH**2
    return [event.nbytes() / one for event in events if event.name() == "[memory]"]


def named(ends: float, layer: float, one: float, ranks: int = RANKS) -> dict[str, dict[float, str]]:
    """Kind of tensor -> its size -> what it is: L of a layer, E of an end or both, l and e a rank's own.

    ends, layer  weights; one: bytes of one in 16 bits
    """
    found: dict[str, dict[float, str]] = {"gathered": {}, "joined": {}, "shards": {}}
    for name, weights in (("L", layer), ("E", ends)):
        whole = one * weights
        found["gathered"] |= {whole: name, whole / ranks: name.lower()}
        found["joined"][2 * whole] = name
        found["shards"][2 * whole / ranks] = name
    return found


def theirs(mesh: Any, units: str) -> dict[str, list[str]]:
    """What comes, and with - what goes, of each kind."""
    known = named(IN_END * (2 if units == "joined" else 1), IN_LAYER, 1.0)
    events = seen(mesh, units)
    return {
        kind: [("-" if size < 0 else "") + names[abs(size)] for size in events if abs(size) in names]
        for kind, names in known.items()
    }


def ours(units: str) -> dict[str, list[str]]:
    """The same of our replay."""
    wanted = changed(job(batch=RANKS, zero=3), software=SOFTWARE[units], gpus=RANKS)
    (shape,) = shapes_of(wanted, ARCH)
    asked = Requests()
    replay = ShardedReplay(wanted, ARCH, shape, RANKS, False, _stage_plans(wanted, ARCH, shape), asked)
    replay.start()
    first = 0
    for number in range(2):
        first = len(asked.asked)
        for unit in schedule(1, 1, 1, "1f1b")[0]:
            replay.run(unit)
        replay.update(number)
    found: dict[str, list[str]] = {"gathered": [], "joined": [], "shards": []}
    streams = {"gathered": GATHER, "joined": COMPUTE, "shards": REDUCE}
    known = {kind: dict[int, str]() for kind in found}
    for key, share in replay.units.items():
        layer = isinstance(key[1], int)
        for kind, names in named(0 if layer else share.reduced, share.reduced if layer else 0, 2.0).items():
            known[kind] |= {int(size): name for size, name in names.items() if size}
    for one in asked.asked[first:]:
        tensor, sign = (one, "") if one >= 0 else (-1 - one, "-")
        for kind, names in known.items():
            if asked.others.get(tensor, COMPUTE) == streams[kind] and asked.sizes[tensor] in names:
                found[kind].append(sign + names[asked.sizes[tensor]])
    return found


@pytest.mark.parametrize("units", ["joined", "apart"])
def test_units_come_and_go_as_pytorchs(units: str, mesh: Any) -> None:
    """In a second step: what is gathered, what gradients are joined in, and their shards."""
    found = ours(units)
    reduced = ARCH.layers + {"joined": 1, "apart": 2}[units]
    assert len(found["joined"]) == len(found["shards"]) == 2 * reduced
    assert found == theirs(mesh, units)
