"""Facts that stand above a table: the command, the devices, the version, a caption."""

from __future__ import annotations

import re
from dataclasses import replace

from railwright.measure.logs.curve import Device, Header

OPS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgatherv": "all_gather",
    "reducescatter": "reduce_scatter",
    "reducescatterblock": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "sendrecv": "sendrecv",
    "bw": "sendrecv",
    "latency": "sendrecv",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "hypercube": "hypercube",
    "alltoallv": "alltoallv",
}
"""A test's name without underscores and case -> ours."""
_MAX = 10**7
_DEVICE = re.compile(
    r"Rank\s+(\d+)(?:\s+Group\s+(\d+))?\s+Pid\s+\d+\s+on\s+(\S+)\s+device\s+(\d+)\s*(?:\[[^\]]*\])?\s*(.*)"
)
_TEST = re.compile(r"\b([a-z_]+)_perf\b")
_OSU_TEST = re.compile(r"\bosu_([a-z_]+?)(?:_persistent)?(?=[\s:'\"`.]|$)")
_OSU_TITLE = re.compile(
    r"OSU\s+(?:\S+\s+)??(?:(All-?to-?Allv?|Allreduce|Allgatherv?|Reduce[_ -]?scatter|Broadcast|Bcast|Reduce|"
    r"Gather|Scatter|Bandwidth|Latency))\b.*?(?:Test|Benchmark)?\s*(v[\d.]+)?",
    re.IGNORECASE,
)
_LAUNCH = re.compile(r"\b(?:mpirun|mpiexec|srun|prun)\b")
_PROCESSES = re.compile(r"\s(?:-np|-n|--np|--ntasks)[ =]+(\d{1,7})\b")
_SPLIT = re.compile(r"NCCL_TESTS_SPLIT(_MASK)?\s*=\s*[\"']?([^\"'\n]*?)[\"']?(?=\s+-|\s+\S*=|\s+[./]|\s*$)")
_PARAMETERS = re.compile(r"nThread\s+(\d{1,7})\s+nGpus\s+(\d{1,7})\b")
_CAPTION = re.compile(r"\b(\d{1,6})\s*(?:x\s*)?(?:[A-Z]+\d+\s+)?(?:GPUs|ranks|processes)\b", re.IGNORECASE)
_HINT = re.compile(r"rank|nthread|_perf|osu|run\b|mpiexec|_split|ersion|gpus|processes", re.IGNORECASE)
"""What any line with a fact has; most lines of a long log have none of it."""
_VERSION = re.compile(r"((?:nccl|rccl)-tests:?\s+[Vv]ersion\s+\S+|[NR]CCL version\s*:?\s*\S+)")


def op_named(text: str) -> str | None:
    """Our name of the collective in 'alltoall', 'all_reduce_perf', 'osu_allgather', 'AllReduce'; or None."""
    plain = re.sub(r"[^a-z]", "", text.lower().removesuffix("_perf").removeprefix("osu_"))
    return OPS.get(plain)


def test_in(text: str) -> str | None:
    """The collective that a line's command or title names, or None."""
    for pattern in (_TEST, _OSU_TEST):
        for found in pattern.finditer(text):
            op = op_named(found[1])
            if op:
                return op
    title = _OSU_TITLE.search(text) if "OSU" in text else None
    return op_named(re.sub(r"(?i)bandwidth", "bw", title[1])) if title else None


def take(header: Header, text: str) -> Header | None:
    """The header with what this line adds, or None where the line states no fact."""
    if not _HINT.search(text):
        return None
    device = _DEVICE.search(text)
    if device:
        rank, group, host, gpu, name = device.groups()
        one = Device(_small(rank), _small(group or "0"), host, _small(gpu), name.strip())
        return replace(header, devices=(*header.devices, one))
    parameters = _PARAMETERS.search(text)
    if parameters:
        return replace(header, threads=_small(parameters[1]), gpus=_small(parameters[2]), devices=())
    changed = header
    split = _SPLIT.search(text)
    if split and split[2].strip():
        changed = replace(changed, split=("AND " if split[1] else "") + split[2].strip())
    if _LAUNCH.search(text):
        # A new launch: what the last one said of its devices is over.
        processes = _PROCESSES.search(text)
        changed = replace(changed, processes=_small(processes[1]) if processes else 0, devices=())
    if test_in(text):
        changed = replace(changed, command=" ".join(text.split())[:400])
    version = _VERSION.search(text)
    if version:
        changed = replace(changed, version=version[1])
    caption = _CAPTION.search(text)
    if caption and not _LAUNCH.search(text) and not text.lstrip().startswith("#"):
        changed = replace(changed, caption=_small(caption[1]))
    return None if changed is header else changed


def _small(text: str) -> int:
    return min(int(text[:9]), _MAX)
