"""The small tables behind the readers: rates, names of hosts, ports and nodes, headings of sheets."""

import pytest

from railwright.asbuilt.read.columns import columns
from railwright.asbuilt.read.descriptions import chassis, host_and_adapter, is_aggregation
from railwright.asbuilt.read.hostlist import expand
from railwright.asbuilt.read.interfaces import port_numbers
from railwright.asbuilt.read.pcie import lane_rate
from railwright.asbuilt.read.speeds import name_of, rate_of, speed_name


@pytest.mark.parametrize(
    ("width", "speed", "gigabits"),
    [(4, "SDR", 8), (4, "QDR", 32), (4, "FDR10", 40), (4, "FDR", 54.56), (4, "EDR", 100), (2, "HDR", 100),
     (4, "HDR", 200), (4, "NDR", 400), (4, "XDR", 800), (12, "EDR", 300)],
)  # fmt: skip
def test_a_link_carries_what_the_roadmap_says(width, speed, gigabits):
    assert rate_of(width, speed) * 8 / 1e9 == pytest.approx(gigabits)


def test_a_speed_is_known_by_name_and_by_signalling_rate():
    told = [
        "2.5 Gbps",
        "5.0 Gbps",
        "10.0 Gbps",
        "14.0625 Gbps",
        "25.78125 Gbps",
        "53.125 Gbps",
        "106.25 Gbps",
    ]
    assert [speed_name(text) for text in told] == ["SDR", "DDR", "QDR", "FDR", "EDR", "HDR", "NDR"]
    assert speed_name("hdr") == "HDR"
    assert speed_name("???") == speed_name("") == speed_name("900 Gbps") == ""
    assert name_of(50e9) == (4, "NDR")
    assert name_of(51e9) == (0, "")


def test_a_pcie_lane_loses_its_coding():
    """16 lanes at 8 GT/s: 16 * 8 * 128/130 / 8 = 15.75 GB/s; at 5 GT/s 8 GB/s."""
    assert 16 * lane_rate(8.0) == pytest.approx(15.7538e9, rel=1e-4)
    assert 16 * lane_rate(5.0) == pytest.approx(8e9)
    assert lane_rate(7.0) == 0


@pytest.mark.parametrize(
    ("name", "host", "adapter"),
    [
        ("dgx-01 HCA-3", "dgx-01", "HCA-3"),
        ("node012 mlx5_4", "node012", "mlx5_4"),
        ("server-03/nic-2", "server-03", "nic-2"),
        ("n7:mlx5_bond_0", "n7", "mlx5_bond_0"),
        ("RMD701091901003 ibp11s0f0", "RMD701091901003", "ibp11s0f0"),
        ("localhost mlx5_2", "", "mlx5_2"),
        ("MT4129 ConnectX7   Mellanox Technologies", "", ""),
        ("Mellanox Technologies Aggregation Node", "", ""),
        ("", "", ""),
        ("gpu-host-1", "gpu-host-1", ""),
    ],
)
def test_a_description_tells_host_and_adapter_or_nothing(name, host, adapter):
    assert host_and_adapter(name) == (host, adapter)


def test_a_managed_switch_tells_its_chassis():
    assert chassis("MF0;r7ib1:MCS8500/L01/U1") == ("r7ib1", "MCS8500")
    assert chassis("MF0;r7ib0:MQM8700/U1") == ("", "MQM8700")
    assert chassis("leaf-07") == ("", "")
    assert is_aggregation("Mellanox Technologies Aggregation Node")
    assert not is_aggregation("aggr-01 mlx5_0")


def test_hostlists_expand_as_slurm_does():
    assert expand("n[01-03,7],m1") == ["n01", "n02", "n03", "n7", "m1"]
    assert expand("r[1-2]n[08-09]") == ["r1n08", "r1n09", "r2n08", "r2n09"]
    assert expand("") == []
    for wrong in ("n[3-1]", "n[1-2", "n[a-b]", "n[0-99999999]", "n[0-9999]m[0-9999]"):
        with pytest.raises(ValueError, match="n\\["):
            expand(wrong)


def test_ports_count_through_split_cages():
    """Cumulus counts parts from 0, NVOS and MLNX-OS from 1; two parts a cage unless more are seen."""
    assert port_numbers(["swp1s0", "swp1s1", "swp2s0"]) == {"swp1s0": 1, "swp1s1": 2, "swp2s0": 3}
    assert port_numbers(["swp3s3", "swp2"]) == {"swp3s3": 12, "swp2": 5}
    assert port_numbers(["sw1p2", "sw10p1"]) == {"sw1p2": 2, "sw10p1": 19}
    assert port_numbers(["10/1", "1/2"]) == {"10/1": 19, "1/2": 2}
    assert port_numbers(["1/1", "1/36"]) == {"1/1": 1, "1/36": 36}
    assert port_numbers(["Ethernet1/7", "j52", "9", "RCM"]) == {"Ethernet1/7": 7, "j52": 52, "9": 9, "RCM": 0}


def test_headings_are_found_however_they_are_written():
    ours = columns(
        ["cable", "tier", "from", "from_port", "to", "to_port", "rate_bytes_per_s", "length_m", "state"]
    )
    assert ours is not None
    assert {key: ours[key] for key in (("a", "device"), ("a", "port"), ("b", "device"), ("b", "port"))} == {
        ("a", "device"): 2, ("a", "port"): 3, ("b", "device"): 4, ("b", "port"): 5,
    }  # fmt: skip
    hpe = columns(
        ["", "Source", "Rack", "Location", "Slot", "", "Port", "Destination", "Rack", "Location", "", "Port"]
    )
    assert hpe is not None
    assert (hpe["a", "port"], hpe["a", "slot"], hpe["b", "device"], hpe["b", "port"]) == (6, 4, 7, 11)
    cvt = columns(["Rack", "U", "Name", "HCA/Port", "Rack", "Name", "Name", "Port"])
    assert cvt is not None
    assert (cvt["a", "device"], cvt["a", "hca"], cvt["b", "device"], cvt["b", "port"]) == (2, 3, 6, 7)
    assert columns(["name", "price"]) is None
    assert columns(["from", "to"]) is None
