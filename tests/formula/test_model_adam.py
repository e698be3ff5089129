"""Bytes of an Adam step, counted by hand from the kernels that run it."""

import pytest

from railwright.model import AdamTypes, optimizer_bytes, optimizer_operators
from railwright.model.operators.adam import BY_ADAM
from railwright.spec.training import Layout, TrainingJob
from railwright.training.optimizer.adam import adam_types, widens_moments


def job(**fields):
    layout = fields.pop("layout", {})
    return TrainingJob(
        name="j",
        model="llama-3-8b",
        sequence=8192,
        global_batch=64,
        tokens=1e9,
        layout=Layout(**layout),
        **fields,
    )


READS = {"software": "megatron-2026"}
"""Its Transformer Engine reads moments of 16 bits as they are, since 2.14; that of megatron-2025 does not."""

APEX = {"software": "nemo-2024", "apex_bucket": "125 MiB", "gradient_dtype": "fp32"}


@pytest.mark.parametrize(
    ("asked", "moved"),
    [
        # norm 4 | gradient, master, moments 16 read, master, moments 12 written | master 4 again, weight 2
        ({}, 4 + 28 + 6),
        # gradients 2 read and 4 written before
        ({"gradient_dtype": "bf16"}, 6 + 4 + 28 + 6),
        # a copy in 16 bits, its largest element where scales are not delayed, the cast
        ({"dtype": "fp8", "amax_over": "stage"}, 4 + 28 + 6 + 3),
        ({"dtype": "fp8"}, 4 + 28 + 6 + 2 + 3),
        # scales that are delayed are Adam's kernel's matter
        ({"dtype": "fp8", "amax_over": "stage", "moment_dtype": "bf16", **READS}, 4 + 4 + 8 + 8 + 1),
        # others are not: gradients are widened and masters cast although moments are narrow
        (
            {"dtype": "mxfp8", "moment_dtype": "bf16", "gradient_dtype": "bf16", **READS},
            6 + 4 + 4 + 8 + 8 + 6,
        ),
        # 16-bit weights: the copies in narrower formats are made in the forward pass or behind the gather
        ({"dtype": "mxfp8"}, 4 + 28 + 6),
        # gradient 4 twice, master 8, moments 2 x 4, and Adam's kernel writes the weight
        ({"moment_dtype": "bf16", **READS}, 4 + 4 + 8 + 8 + 2),
        # gradient 2 twice, weight and remainder 2 + 2 read and written, moments 2 x 4
        ({"moment_dtype": "bf16", "master": "remainder", "gradient_dtype": "bf16", **READS}, 2 + 2 + 8 + 8),
        # moments of 16 bits are widened, updated, cast, and the cast is copied: 6 + 8 + 6 + 4 bytes each
        ({"moment_dtype": "bf16"}, 4 + 4 + 8 + 48 + 2),
        ({"moment_dtype": "bf16", "master": "remainder", "gradient_dtype": "bf16"}, 2 + 2 + 8 + 48),
        # Apex's kernel is a template over the type of its states
        ({**APEX, "moment_dtype": "bf16"}, 4 + 4 + 8 + 8 + 2),
        # moments in fp8 are widened, updated, looked through and cast: 22 bytes each
        ({"moment_dtype": "fp8"}, 4 + 4 + 8 + 44 + 2),
        # FSDP: norm 4, clip 8, gradient, weight, moments 16 read and 12 written; nothing else is written
        ({"software": "fsdp-2025", "layout": {"zero": 3}}, 4 + 8 + 28),
        ({"software": "fsdp-2025", "layout": {"zero": 3}, "gradient_dtype": "bf16"}, 6 + 4 + 8 + 28),
    ],
)
def test_a_jobs_step_moves_what_its_kernels_read_and_write(asked, moved):
    assert optimizer_bytes(1.0, adam_types(job(**asked))) == moved
    assert sum(op.bytes for op in optimizer_operators(1e9, adam_types(job(**asked)))) == moved * 1e9


@pytest.mark.parametrize("software", ["megatron-2025", "megatron-2026", "nemo-2024"])
def test_time_and_memory_know_the_same_of_widened_moments(software):
    """What memory holds in fp32 at the step is what the step moves."""
    asked = job(moment_dtype="bf16", software=software)
    assert (adam_types(asked).moment == "bf16, widened") == widens_moments(asked)


def test_without_a_job_it_is_megatrons_default():
    assert optimizer_bytes(1e9) == 38e9
    assert optimizer_operators(1e9)[0].bytes == 4e9


def test_adams_kernel_that_writes_weights_spares_the_master_a_reading():
    assert optimizer_bytes(1.0, AdamTypes(weight=BY_ADAM["16 bits"])) == 34


def test_narrow_moments_are_not_always_faster():
    whole, half, eighth = (
        optimizer_bytes(1.0, AdamTypes(moment=moment)) for moment in ("fp32", "bf16", "fp8")
    )
    assert half < whole < eighth
