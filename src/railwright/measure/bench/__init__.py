"""`railwright bench`: collectives, pairs and rails by torch.distributed (NCCL on GPUs, gloo on CPUs).

Torch is optional and imported only when something is measured; schedules, splits and formats need none.
"""

from railwright.measure.bench.matrix import Matrix as Matrix
from railwright.measure.bench.places import Place as Place
from railwright.measure.bench.places import split as split
from railwright.measure.bench.report import BenchReport as BenchReport
from railwright.measure.bench.report import BenchRow as BenchRow
from railwright.measure.bench.report import Cell as Cell
from railwright.measure.bench.schedule import rounds as rounds
