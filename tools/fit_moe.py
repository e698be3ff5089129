"""What each record of dispatch and combine says of the kernels' constants: fitted with it left out in turn.

Reads the cases of `measure.published.moe`, and writes src/railwright/measure/data/moe_left_out.json: the
constants of collectives/data/moe.yaml as they would be if a record had never been published, and 'all'.
Least squares of log(predicted / measured), every record weighing alike and UCCL-EP's, other software, a
quarter; a weak pull holds each constant to what NCCL says of the same wire, so that what no other record
tells falls back there and not on what the left-out one said.  Run: python tools/fit_moe.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from railwright.collectives import predict
from railwright.collectives.constants import nccl
from railwright.measure.published.moe import PORT, Case, cases, machine_for, timed, with_constants
from railwright.traffic.demand import Communicator

OUT = Path(__file__).parent.parent / "src/railwright/measure/data/moe_left_out.json"
PULL = 0.1
"""Weight of the pull to NCCL's values: a factor of e away from them costs what one record 10 % off does."""
PORT_WEIGHT = 0.25
GENERATIONS = ("hopper", "blackwell", "cdna")


def neutral() -> dict[str, float]:
    """Every constant that is fitted, at what NCCL's model says: its wire rates, its smallest all-to-all."""
    answer = {}
    for kernel in ("normal", "low_latency"):
        answer[f"{kernel}.network_efficiency"] = 0.96
        for stage in ("dispatch", "combine"):
            for place, servers in (("one_node", 1), ("network", 2)):
                on = machine_for("dgx-h100", 8 * servers, None)
                world = [Communicator(np.arange(8 * servers, dtype=np.int32))]
                answer[f"{kernel}.launch.{stage}.{place}"] = predict(on, "all_to_all", 8.0, world).time
        for generation in GENERATIONS:
            usable = float(nccl()["usable"]["scale_up"][generation])
            answer[f"{kernel}.scale_up_efficiency.{generation}"] = usable
    return answer


def fitted(kept: list[Case]) -> dict[str, float]:
    """The constants that these cases give."""
    start = neutral()
    names = list(start)
    origin = np.log([start[name] for name in names])
    count = {case.record: sum(c.record == case.record for c in kept) for case in kept}
    weight = [np.sqrt((PORT_WEIGHT if case.family == PORT else 1.0) / count[case.record]) for case in kept]

    def residuals(x: np.ndarray) -> np.ndarray:
        facts = with_constants(dict(zip(names, np.exp(x), strict=True)))
        logs = [np.log(ours / measured) for ours, measured in (timed(case, facts) for case in kept)]
        return np.concatenate([np.array(weight) * logs, PULL * (x - origin)])

    answer = least_squares(residuals, origin, loss="soft_l1", f_scale=0.1, diff_step=1e-3, max_nfev=12)
    return {name: float(f"{value:.3g}") for name, value in zip(names, np.exp(answer.x), strict=True)}


def main() -> None:
    """Write the file, one record left out after the other."""
    everything = list(cases())
    found = {"all": fitted(everything)}
    for record in dict.fromkeys(case.record for case in everything):
        found[record] = fitted([case for case in everything if case.record != record])
        print(record, found[record])
    OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
