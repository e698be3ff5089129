"""Logs of training steps for tests: a line of every framework, and logs of seconds held against one job."""

from __future__ import annotations

from pathlib import Path

from railwright.measure.compare.steps import ComparedSteps, compare_steps
from railwright.measure.steplog import LoggedStep, StepLog
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from training_cases import DENSE, job, machine

LINES = {
    "Megatron-LM": (
        " [2026-11-02 10:20:30.123456] iteration       12/     500 | consumed samples:         1536 | "
        "elapsed time per iteration (ms): 4567.8 | throughput per GPU (TFLOP/s/GPU): 401.5 | "
        "learning rate: 1.5E-05 | global batch size:   128 | lm loss: 1.1E+01 | loss scale: 1.0 |",
        LoggedStep(1, 12, seconds=4.5678, samples=128, flop_rate=401.5e12),
    ),
    "NeMo": (
        "0: Training epoch 0, iteration 45/99 | lr: 6.897e-06 | global_batch_size: 128 | global_step: 45 | "
        "max_memory_reserved: 127785762816 | reduced_train_loss: 11.96 | train_step_timing in s: 6.08 | "
        "TFLOPS_per_GPU: 1.249e+03 | consumed_samples: 5888",
        LoggedStep(1, 45, seconds=6.08, samples=128, reserved=127785762816, flop_rate=1.249e15),
    ),
    "torchtitan": (
        "[rank0]:[titan] 2026-01-08 14:17:28 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  7.01000  "
        "\x1b[38mgrad_norm:  1.2000  memory: 40.50GiB(51.16%)  tps: 5,762  "
        "tflops: 334.10  mfu: 33.78%\x1b[39m",
        LoggedStep(1, 10, rate=5762, reserved=40.5 * 2**30, flop_rate=334.1e12),
    ),
    "nanotron": (
        "01/08/2026 14:17:28 [INFO|DP=0|PP=0|TP=0]: iteration: 7 / 1000 | consumed_tokens: 7.34M | "
        "time_per_iteration_ms: 2.05K | tokens_per_sec: 512K | tokens_per_sec_per_gpu: 8K | "
        "global_batch_size: 1.05M | lm_loss: 9.8 | lr: 0.0003 | model_tflops_per_gpu: 180 | eta: 0:34:00",
        LoggedStep(1, 7, seconds=2.05, tokens=1.05e6, flop_rate=180e12),
    ),
    "DeepSpeed's pipeline engine": (
        "steps: 100 loss: 2.3456 iter time (s): 5.120 samples/sec: 200.000",
        LoggedStep(1, 100, seconds=5.12, samples=1024),
    ),
    "DeepSpeed": (
        "[2026-04-19 13:28:48,887] [INFO] [timer.py:260:stop] epoch=0/micro_step=40/global_step=10, "
        "RunningAvgSamplesPerSec=151.50460549, CurrSamplesPerSec=160.5, MemAllocated=5.56GB, "
        "MaxMemAllocated=16.6GB",
        LoggedStep(1, 10, sample_rate=160.5),
    ),
    "MaxText": (
        "I0811 21:55:06.119312 138304841739136 metric_logger.py:226] completed step: 9, seconds: 5.667, "
        "TFLOP/s/device: 134.924, Tokens/s/device: 8672.758, total_weights: 196608, loss: 10.374",
        LoggedStep(1, 9, seconds=5.667, rate=8672.758, flop_rate=134.924e12),
    ),
    "InternEvo": (
        "2024-08-23 19:25:04,187 INFO pipeline.py:663 in record_current_batch_training_metrics -- "
        "tflops=252.447 step=199 loss=0.0004 real_tgs=2055.59 tgs (tokens/gpu/second)=2511.37 "
        "tgs/last_tgs_1=2511.30 tgs/tgs_all=2481.83 lr=1e-05 micro_num=8",
        LoggedStep(1, 199, rate=2511.37),
    ),
    "OLMo-core": (
        "2026-01-08 14:17:28.123\thost:0\tolmo_core.train.callbacks.console_logger:75\tINFO\t"
        "[step=20/1000,epoch=1,eta=1h2m]\n    train/CE loss=2.345\n    throughput/device/TPS=12,345\n"
        "    throughput/device/TPS (actual avg)=11,000\n    gpu_memory/GPU reserved mem (GiB)=61.25",
        LoggedStep(3, 20, rate=12345),
    ),
    "OLMo": (
        "2024-03-08 14:17:28.123\thost:0\tolmo.train:1102\tINFO\t[step=20/739328]\n"
        "    train/CrossEntropyLoss=2.345\n    throughput/device/tokens_per_second=9,876",
        LoggedStep(3, 20, rate=9876),
    ),
    "torchtune": (
        "  1|52|Loss: 2.3697006702423096:   0%|▏                     | 52/25880 [00:24<3:55:01,  1.25it/s]",
        LoggedStep(1, 52, seconds=0.8),
    ),
    "Hugging Face's Trainer": (
        "{'train_runtime': 1000.5, 'train_samples_per_second': 64.0, 'train_steps_per_second': 0.5}",
        LoggedStep(1, 0, seconds=2.0, samples=128),
    ),
}


def written(folder: Path, text: str) -> Path:
    file = folder / "job.log"
    file.write_text(text, encoding="utf-8")
    return file


JOB = job(batch=64, tensor=2)


def logged(seconds: list[float], **said: object) -> StepLog:
    steps = (LoggedStep(i + 1, i + 1, seconds=s, samples=64) for i, s in enumerate(seconds))
    return StepLog("job.log", "Megatron-LM", tuple(steps), **said)  # type: ignore[arg-type]


def compared(seconds: list[float], plan: TrainingJob = JOB, **said: object) -> ComparedSteps:
    return compare_steps(logged(seconds, **said), plan, DENSE, machine())


def predicted(plan: TrainingJob = JOB) -> float:
    return simulate(plan, DENSE, machine(), most_events=0).step_time
