"""How tools/carry_mlperf.py reads a submission's configuration: bash exports, OmegaConf's rules, logs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "mlperf_settings.py"

if not TOOL.exists():
    pytest.skip("tools/ is not in this distribution", allow_module_level=True)


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mlperf_settings", TOOL)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


COMMON = """
export DGXNGPU=8
export MINIBS="${MINIBS:=128}"
export DGXSYSTEM=$(basename $(readlink -f ${BASH_SOURCE[1]}) | sed 's/^config_//')
: "${SP:=True}"
export SP
echo lost > written
"""
OWN = """
source $(dirname ${BASH_SOURCE[0]})/config_common.sh
source $(dirname ${BASH_SOURCE[0]})/config_common_gone.sh
export DGXNNODES=2
if [ $MINIBS -eq 144 ]; then
  export TP=4
fi
unset SP
"""


class OneFolder:
    """A snapshot with these two files in a/b."""

    def scripts(self, folder: str) -> dict[str, str]:
        return {"config_common.sh": COMMON, "config_x.sh": OWN} if folder == "a/b" else {}


def test_exports_are_those_of_bash_with_no_program_in_reach(tool: ModuleType) -> None:
    made, lost = tool.exported(OneFolder(), "a/b/config_x.sh", {}, {})
    assert {k: made.get(k) for k in ("DGXNGPU", "DGXNNODES", "MINIBS", "TP", "SP")} == {
        "DGXNGPU": "8",
        "DGXNNODES": "2",
        "MINIBS": "128",
        "TP": None,
        "SP": None,
    }
    assert lost == ["./config_common_gone.sh"]


def test_what_a_run_was_started_with_decides_where_a_configuration_leaves_it(tool: ModuleType) -> None:
    made, _ = tool.exported(OneFolder(), "a/b/config_x.sh", {}, {"MINIBS": "144"})
    assert (made["MINIBS"], made["TP"]) == ("144", "4")


def test_settings_resolve_as_omegaconf_does(tool: ModuleType) -> None:
    """16 GPUs over tensor 4 and context 2 are 2 replicas; of 72 sequences each: 144."""
    devices = "${multiply:${trainer.devices},${trainer.num_nodes}}"
    tree = {
        "trainer": {"devices": "${oc.decode:${oc.env:DGXNGPU,8}}", "num_nodes": "${oc.decode:${oc.env:N}}"},
        "model": {
            "tensor": "${oc.decode:${oc.env:TP,1}}",
            "batch": "${multiply:${oc.decode:${oc.env:MINIBS}},${floor_div:" + devices + ",${multiply:4,2}}}",
            "granularity": "${oc.decode:${oc.env:ACG,null}}",
            "kind": "${oc.decode:${oc.env:CP_COMM_TYPE,'a2a'}}",
            "overlap": "${oc.decode:${oc.env:TP_COMM_OVERLAP,False}}",
            "overwritten_attributes": {
                "scope": "${oc.decode:${if:${eq:'1',${oc.env:FULL,0}},'full_iteration','full'}}"
            },
        },
    }
    said = tool.Settings(tree, {"N": "2", "TP": "4", "MINIBS": "72", "TP_COMM_OVERLAP": "1"})
    assert (said.model("tensor"), said.model("batch")) == (4, 144)
    assert (said.model("granularity"), said.model("kind"), said.model("overlap")) == (None, "a2a", 1)
    assert (said.model("scope"), said.model("absent"), said.model("absent", 1)) == ("full", None, 1)


LOG = """
 0: before
 0: [NeMo I train:59]
 0:     ************** Experiment configuration ***********
 1: of another rank
 0: [NeMo I train:60]
 0:     model:
 1: more of it
 0:       tensor_model_parallel_size: 4
 0:       defaults:
 0:       - attention
 0:     trainer:
 0:       devices: 8
 0:
 0: [NeMo W] done
 0:     later: 1
"""


def test_a_log_tells_the_configuration_that_ran(tool: ModuleType) -> None:
    assert tool.printed(LOG) == {
        "model": {"tensor_model_parallel_size": 4, "defaults": ["attention"]},
        "trainer": {"devices": 8},
    }
    assert tool.printed("0: nothing of the kind") is None
