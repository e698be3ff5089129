"""The machine that a study describes, for commands that ask one thing of it; `run` has its `Workshop`."""

from __future__ import annotations

from railwright.catalog import load_catalog
from railwright.collectives import Machine, NcclSettings
from railwright.spec.study import Study


def study_machine(study: Study) -> Machine:
    """The machine of a study with its NCCL settings, calibrated where it names a profile.

    Raises PlanError when its fabric is impossible, SpecError for a broken profile.
    """
    profile = None
    if study.calibration is not None:
        # Here, not above: what reads a profile takes a second to load.
        from railwright.measure.fitting.profile import profile_of

        profile = profile_of(study)
    return Machine.of(study.cluster, load_catalog(study.catalog), NcclSettings.of(study.nccl), profile)
