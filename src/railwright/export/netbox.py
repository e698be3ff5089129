"""NetBox: what its bulk import takes, in the order it has to be imported in; everything is planned.

Columns as NetBox's import forms have them (netbox, dcim/forms/bulk_import.py: ManufacturerImportForm,
DeviceRoleImportForm, SiteImportForm, DeviceImportForm, CableImportForm); device types as the files of the
device type library (netbox-community/devicetype-library, README).
"""

from __future__ import annotations

import re

from railwright.catalog.parts import Server, Switch
from railwright.export.sheet import SWITCH_KINDS, Sheet, csv_text
from railwright.export.yamltext import quoted
from railwright.fabric.graph import Kind, Role

# Names that NetBox's own library gives makers, where capitals do not say it all.
_MAKERS = {"nvidia": "NVIDIA", "amd": "AMD", "aws": "AWS", "hpe": "HPE", "generic": "Generic"}

# NetBox, dcim/choices.py, InterfaceTypeChoices, by technology and rate [Gb/s].
_INTERFACES = {
    "infiniband": {
        100: "infiniband-edr",
        200: "infiniband-hdr",
        400: "infiniband-ndr",
        800: "infiniband-xdr",
    },
    "ethernet": {
        1: "1000base-t",
        10: "10gbase-x-sfpp",
        25: "25gbase-x-sfp28",
        100: "100gbase-x-qsfp28",
        200: "200gbase-x-qsfp56",
        400: "400gbase-x-osfp",
        800: "800gbase-x-osfp",
    },
}

# NetBox, dcim/choices.py, CableTypeChoices.
_CABLES = {
    "copper": "dac-passive", "twisted-pair": "cat6", "multimode": "mmf", "single-mode": "smf", "": "",
}  # fmt: skip

# Role -> colour (RRGGBB), as NetBox wants one.
_ROLES = {"server": "2196f3", "leaf": "4caf50", "spine": "ff9800", "core": "f44336"}

CABLE_COLUMNS = (
    "side_a_device", "side_a_type", "side_a_name", "side_b_device", "side_b_type", "side_b_name",
    "type", "status", "label", "length", "length_unit",
)  # fmt: skip


def render(sheet: Sheet) -> dict[str, str]:
    """The files in the order of import."""
    roles = ["server", *(k.name.lower() for k in SWITCH_KINDS if len(sheet.fabric.devices(k)))]
    makers = {role: _maker(_part(sheet, role)) for role in roles}
    unique = list(dict.fromkeys(makers.values()))
    site = sheet.title[:100].strip()  # as long as NetBox's names may be
    return {
        "manufacturers.csv": csv_text(("name", "slug"), [(m, _slug(m)) for m in unique]),
        "device_roles.csv": csv_text(("name", "slug", "color"), [(r, r, _ROLES[r]) for r in roles]),
        "sites.csv": csv_text(("name", "slug", "status"), [(site, _slug(site), "planned")]),
        **_device_types(sheet, makers),
        "devices.csv": _devices(sheet, makers, site),
        "cables.csv": _cables(sheet),
    }


def interface(sheet: Sheet, device: int, port: int) -> str:
    """What a port is called on its NetBox device: 'port 37' of a switch, 'nic-2 port 1' of a server."""
    if sheet.fabric.kind[device] == Kind.NIC:
        return f"nic-{sheet.local[device]} port {port}"
    return f"port {port}"


def _device_types(sheet: Sheet, makers: dict[str, str]) -> dict[str, str]:
    """One file per part; two tiers of the same switch share one, unless ports of the leaves are split."""
    files = {}
    technology = leaf.technology if (leaf := sheet.switch(Kind.LEAF)) else "ethernet"
    for role, maker in makers.items():
        part, name = _part(sheet, role), _model(sheet, role)
        lines = [
            f"manufacturer: {quoted(maker)}",
            f"model: {quoted(name)}",
            f"slug: {_slug(f'{maker}-{name}')}",
        ]
        if part is not None:
            lines.append(f"u_height: {part.rack_units}")
        lines += ["is_full_depth: true", "interfaces:"]
        if role == "server":
            nic = sheet.nic
            rate = nic.rate * nic.ports / max(nic.ports, sheet.nic_ports) if nic else _node_rate(sheet)
            type_ = _interface_type(technology, rate)
            names = (f"nic-{n} port {p + 1}" for n in range(sheet.nics) for p in range(sheet.nic_ports))
            ports = dict.fromkeys(names, type_)
        else:
            ports = _switch_ports(sheet, Kind[role.upper()], technology)
        for port, type_ in ports.items():
            lines += [f"  - name: {quoted(port)}", f"    type: {type_}"]
        files[f"device-types/{_slug(name)}.yaml"] = "\n".join(lines) + "\n"
    return files


def _switch_ports(sheet: Sheet, kind: Kind, technology: str) -> dict[str, str]:
    """Interfaces of a tier's switches and their types; of a port that is split on some, its parts."""
    switch, split = sheet.switch(kind), sheet.fabric.breakout if kind is Kind.LEAF else 1
    rate = switch.rate if switch else _node_rate(sheet)
    technology = switch.technology if switch else technology
    whole = _interface_type(technology, rate)
    most = max(sheet.ports[int(d)] for d in sheet.fabric.devices(kind))
    if split == 1:
        return {f"port {p + 1}": whole for p in range(most)}
    part = _interface_type(technology, rate / split if switch else rate)
    legs = {(c.port_b - 1) // split for c in sheet.pulled if c.role == Role.NODE_LEAF}
    return {
        f"port {p + 1}": part if p // split in legs else whole
        for p in range(most)
        if p // split in legs or p % split == 0
    }


def _model(sheet: Sheet, role: str) -> str:
    """Name of a device's type: a switch whose ports are split has other interfaces than a whole one."""
    name, split = sheet.part_name(role), sheet.fabric.breakout
    return f"{name}, ports split in {split}" if role == "leaf" and split > 1 else name


def _devices(sheet: Sheet, makers: dict[str, str], site: str) -> str:
    rows = [(host, "server") for host in sheet.hosts]
    for kind in SWITCH_KINDS:
        rows += [(sheet.names[d], kind.name.lower()) for d in sheet.fabric.devices(kind).tolist()]
    return csv_text(
        ("name", "role", "manufacturer", "device_type", "site", "status"),
        [(name, role, makers[role], _model(sheet, role), site, "planned") for name, role in rows],
    )


def _cables(sheet: Sheet) -> str:
    device = [h.split("/")[0] for h in sheet.names]
    rows = []
    for number, c in enumerate(sheet.pulled, 1):
        length = (f"{c.length:g}", "m") if c.length else ("", "")
        ends = (
            *(device[c.a], "dcim.interface", interface(sheet, c.a, c.port_a)),
            *(device[c.b], "dcim.interface", interface(sheet, c.b, c.port_b)),
        )
        rows.append((*ends, _CABLES[c.medium], "planned", f"C{number:06d}", *length))
    return csv_text(CABLE_COLUMNS, rows)


def _part(sheet: Sheet, role: str) -> Server | Switch | None:
    return sheet.server if role == "server" else sheet.switch(Kind[role.upper()])


def _maker(part: Server | Switch | None) -> str:
    return "Unknown" if part is None else _MAKERS.get(part.vendor, part.vendor.capitalize())


def _interface_type(technology: str, rate: float) -> str:
    return _INTERFACES[technology].get(round(rate * 8 / 1e9), "other")


def _node_rate(sheet: Sheet) -> float:
    return sheet.pulled[0].rate


def _slug(text: str) -> str:
    """Lower case, digits, '-' and '_' only; NetBox takes 100 characters at most."""
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")[:100] or "unnamed"
