"""The room a cluster stands in: racks, power, cooling, cable runs and storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "SitePlan": "plan",
    "plan_site": "plan",
    "planned_lengths": "plan",
    "SiteParts": "parts",
    "load_site_parts": "loading",
    "bill": "billing",
    "BillLine": "billing",
    "StoragePlan": "storage",
    "plan_storage": "storage",
    "cable_rows": "rows",
    "power_rows": "rows",
    "rack_rows": "rows",
    "csv_files": "rows",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from railwright.site.billing import BillLine as BillLine
    from railwright.site.billing import bill as bill
    from railwright.site.loading import load_site_parts as load_site_parts
    from railwright.site.parts import SiteParts as SiteParts
    from railwright.site.plan import SitePlan as SitePlan
    from railwright.site.plan import plan_site as plan_site
    from railwright.site.plan import planned_lengths as planned_lengths
    from railwright.site.rows import cable_rows as cable_rows
    from railwright.site.rows import csv_files as csv_files
    from railwright.site.rows import power_rows as power_rows
    from railwright.site.rows import rack_rows as rack_rows
    from railwright.site.storage import StoragePlan as StoragePlan
    from railwright.site.storage import plan_storage as plan_storage


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line's help needs no numpy."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"railwright.site.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'railwright.site' has no attribute '{name}'")
