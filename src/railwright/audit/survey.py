"""The live network of a fabric as arrays: what still carries, where each NIC hangs, which parts are joined.

Legend: N devices, C cables, S switches (leaves, spines, cores; numbered from 0), D leaves, K NICs (from 0),
E live NIC-leaf cables, G GPUs.  A cable is live when both of its directions carry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from railwright.fabric.graph import Fabric, Kind, Role

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Survey:
    """What is left of a fabric.

    rate     (C,) live rate of a cable, the slower direction [byte/s]; 0: lost
    low, high  (C,) device ids of both ends, the one nearer to the GPUs first
    first_switch, first_nic   device ids
    nic, leaf  (E,) both ends of each live NIC-leaf cable, NICs and switches counted from 0
    meshed   (S, S) live cables between each two switches, symmetric
    part     (S,) number of the joined part each switch is in
    nic_alive (K,) whether the NIC has a live way to a leaf and to a GPU
    """

    fabric: Fabric
    rate: Floats
    low: Ints
    high: Ints
    first_switch: int
    first_nic: int
    nic: Ints
    leaf: Ints
    meshed: csr_array
    part: Ints
    nic_alive: Bools

    @property
    def num_switches(self) -> int:
        return self.fabric.num_devices - self.first_switch

    @property
    def num_leaves(self) -> int:
        return int(np.count_nonzero(self.fabric.kind == Kind.LEAF))

    @property
    def num_nics(self) -> int:
        return len(self.nic_alive)

    def switch_name(self, switch: int) -> str:
        """Name of a switch counted from 0."""
        return self.fabric.device_name(self.first_switch + int(switch))

    def nic_server(self) -> Ints:
        """(K,) server of each NIC."""
        return self.fabric.server[self.first_nic : self.first_nic + self.num_nics].astype(np.int64)

    def parts_of_nics(self) -> tuple[Ints, csr_array]:
        """Class of each NIC (K,), and which parts of the network each class reaches (classes, parts) 0/1.

        NICs on the same parts are one class; a dead NIC's class reaches none.
        """
        parts = int(self.part.max(initial=-1)) + 1
        usable = self.nic_alive[self.nic]
        nic, part = self.nic[usable], self.part[self.leaf[usable]]
        touched = np.unique(nic * max(parts, 1) + part)
        nic, part = touched // max(parts, 1), touched % max(parts, 1)
        return _classes(nic, part, self.num_nics, parts)

    def leaves_of_nics(self) -> tuple[Ints, csr_array]:
        """The same as `parts_of_nics` for the leaves that each NIC hangs on (classes, D)."""
        usable = self.nic_alive[self.nic]
        touched = np.unique(self.nic[usable] * self.num_leaves + self.leaf[usable])
        return _classes(touched // self.num_leaves, touched % self.num_leaves, self.num_nics, self.num_leaves)

    def domain_of_gpu(self) -> Ints:
        """(G,) scale-up domain over live lanes: device id of its switch, or the GPU's own id without one."""
        fabric = self.fabric
        domain = np.arange(fabric.num_gpus, dtype=np.int64)
        lanes = np.flatnonzero((fabric.role == Role.SCALE_UP) & (self.rate > 0))
        domain[self.low[lanes]] = self.high[lanes]
        return domain


def survey(fabric: Fabric, lost: Bools | None = None) -> Survey:
    """The live network of a fabric, the cables marked in `lost` (C,) taken away as well."""
    kind = fabric.kind
    rate = np.minimum(fabric.capacity[0::2], fabric.capacity[1::2])
    if lost is not None:
        rate = np.where(lost, 0.0, rate)
    swapped = kind[fabric.a] > kind[fabric.b]
    low = np.where(swapped, fabric.b, fabric.a).astype(np.int64)
    high = np.where(swapped, fabric.a, fabric.b).astype(np.int64)
    first_switch, first_nic = int(np.searchsorted(kind, Kind.LEAF)), int(np.searchsorted(kind, Kind.NIC))
    num_nics = int(np.count_nonzero(kind == Kind.NIC))
    size = fabric.num_devices - first_switch

    live = rate > 0
    hung = np.flatnonzero(live & (fabric.role == Role.NODE_LEAF))
    nic, leaf = low[hung] - first_nic, high[hung] - first_switch
    between = np.flatnonzero(live & (fabric.role > Role.NODE_LEAF))
    a, b = low[between] - first_switch, high[between] - first_switch
    ends = (np.concatenate([a, b]), np.concatenate([b, a]))
    meshed = csr_array(coo_array((np.ones(2 * len(a)), ends), shape=(size, size)))
    meshed.sum_duplicates()
    _, part = connected_components(meshed, directed=False)

    inside = fabric.role == Role.PCIE
    lanes = np.bincount(high[live & inside] - first_nic, minlength=num_nics)
    alive = np.bincount(nic, minlength=num_nics) > 0
    if inside.any():
        alive &= lanes[:num_nics] > 0
    return Survey(
        fabric, rate, low, high, first_switch, first_nic, nic, leaf, meshed, part.astype(np.int64), alive
    )


def _classes(row: Ints, column: Ints, rows: int, columns: int) -> tuple[Ints, csr_array]:
    """Rows with equal sets of columns are one class; `row` is sorted and its pairs are unique."""
    ptr = np.searchsorted(row, np.arange(rows + 1))
    width = int(np.diff(ptr).max(initial=0))
    table = np.full((rows, max(width, 1)), -1, np.int64)
    table[row, np.arange(len(row)) - ptr[row]] = column
    if table.shape[1] == 1:
        kept, class_of = np.unique(table[:, 0], return_inverse=True)
        kept = kept[:, None]
    else:
        kept, class_of = np.unique(table, axis=0, return_inverse=True)
    at = np.nonzero(kept >= 0)
    shape = (len(kept), max(columns, 1))
    return class_of.reshape(-1).astype(np.int64), csr_array(
        coo_array((np.ones(len(at[0])), (at[0], kept[at])), shape=shape)
    )
