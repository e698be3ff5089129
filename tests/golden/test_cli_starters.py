"""Every starter works: its fabric can be built, its first job fits and runs, and so do its sweeps."""

import pytest

from railwright.spec import load_study_text, override, template, template_names
from railwright.study.evaluate import Workshop, curve, run_job

# The same rack, pod and layout with an eighth of the servers: the whole one takes half a minute.
EIGHTH = {"cluster.servers": 512, "jobs.pretrain.gpus": 2016, "jobs.pretrain.global_batch": 252}
SMALLER = {"clos-32k": EIGHTH}


@pytest.mark.parametrize("name", template_names())
def test_a_starter_and_its_variants_run(name):
    study = override(load_study_text(template(name), name), SMALLER.get(name, {}))
    workshop = Workshop.of(study)
    for one in (study, *(override(study, variant.set) for variant in study.variants)):
        job = run_job(one.jobs[0], workshop.machine(one))
        assert job.step is not None, job.infeasible
        assert 0.05 < job.step.mfu < 0.9
        assert job.step.memory.total < job.step.memory.capacity
    for sweep in study.sweeps:
        points = curve(workshop.machine(study), sweep.op, (sweep.end,), "").points
        assert points[0].time > 0
