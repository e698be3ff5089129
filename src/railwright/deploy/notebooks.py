"""Jupyter where the GPUs are: a launch template for each way of sharing."""

from __future__ import annotations

from railwright.deploy.templates import template
from railwright.errors import PlanError
from railwright.spec.sharing import Scheduler


def render(scheduler: Scheduler) -> dict[str, str]:
    """The template. Raises PlanError for Kubernetes, where a notebook hub of its own is the usual way."""
    if scheduler in ("slurm", "slurm-node"):
        return {"jupyter/jupyter.sbatch": template("jupyter.sbatch")}
    if scheduler == "masks":
        return {"jupyter/jupyter.sh": template("jupyter.sh", HOW=", on the GPUs of your mask")}
    if scheduler == "queue":
        return {"jupyter/jupyter.sh": template("jupyter.sh", HOW=": `gpuq ./jupyter.sh` waits for a GPU")}
    raise PlanError(
        "sharing.notebooks: on Kubernetes notebooks are JupyterHub's (zero-to-jupyterhub chart), which this "
        "bundle does not write; leave notebooks out"
    )
