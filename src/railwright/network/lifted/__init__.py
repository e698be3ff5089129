"""All-to-alls of many GPUs solved by their symmetry, exactly and without listing a demand."""

from railwright.network.lifted.check import Breach as Breach
from railwright.network.lifted.check import unequal_classes as unequal_classes
from railwright.network.lifted.solving import lift as lift
from railwright.network.lifted.solving import solve_lifted as solve_lifted
