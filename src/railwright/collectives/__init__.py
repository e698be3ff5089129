"""Collectives as NCCL runs them: its choice, the traffic on the fabric, and the time as terms that add up.

`predict` is imported here, not on first use: its module has the same name and would hide the function.
"""

from railwright.collectives.custom import custom_all_reduce as custom_all_reduce
from railwright.collectives.machine import Machine as Machine
from railwright.collectives.moe import MoePrediction as MoePrediction
from railwright.collectives.moe import predict_dispatch as predict_dispatch
from railwright.collectives.predict import predict as predict
from railwright.collectives.predict import sweep as sweep
from railwright.collectives.prediction import CollectivePrediction as CollectivePrediction
from railwright.collectives.prediction import NcclSettings as NcclSettings
from railwright.collectives.prediction import Op as Op
from railwright.collectives.prediction import Term as Term
from railwright.collectives.rates import bus_factor as bus_factor
from railwright.collectives.rates import ranks_of_ratio as ranks_of_ratio
