"""What is shown of a part can be written into a user's file and means the same part again."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.catalog import KINDS, describe, load_catalog
from railwright.catalog.fields import FIELDS


def written(kind: str, name: str) -> str:
    """A user's record of a part from what `describe` shows of it."""
    fields: dict[str, str] = {}
    peaks: list[str] = []
    for field, shown, _ in describe(getattr(load_catalog(), kind)[name]):
        if field.startswith("peak_flops."):
            peaks.append(f"{field.removeprefix('peak_flops.')}: {shown}")
        else:
            fields[field] = {"yes": "true", "no": "false"}.get(shown, shown)
    if peaks:
        fields["peak_flops"] = f"{{{', '.join(peaks)}}}"
    return f"  copy-of-{name}:\n" + "".join(f"    {field}: {value}\n" for field, value in fields.items())


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_written_as_it_is_shown_is_the_same_part(tmp_path: Path, kind: str) -> None:
    shipped = getattr(load_catalog(), kind)
    path = tmp_path / "copies.yaml"
    path.write_text(f"{kind}:\n" + "".join(written(kind, name) for name in shipped), encoding="utf-8")
    copies = getattr(load_catalog(path), kind)
    for name, part in shipped.items():
        copy = copies[f"copy-of-{name}"]
        for field in FIELDS[kind]:
            value = getattr(part, field)
            expected = value if isinstance(value, str) else pytest.approx(value, rel=1e-12)
            assert getattr(copy, field) == expected, f"{name}.{field}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_like_another_without_a_change_differs_by_its_name_only(tmp_path: Path, kind: str) -> None:
    shipped = getattr(load_catalog(), kind)
    path = tmp_path / "twins.yaml"
    records = "".join(f"  twin-of-{name}: {{like: {name}}}\n" for name in shipped)
    path.write_text(f"{kind}:\n{records}", encoding="utf-8")
    twins = getattr(load_catalog(path), kind)
    for name, part in shipped.items():
        twin = twins[f"twin-of-{name}"]
        assert twin.name == f"twin-of-{name}"
        for field in (*FIELDS[kind], "sources"):
            assert getattr(twin, field) == getattr(part, field), f"{name}.{field}"
