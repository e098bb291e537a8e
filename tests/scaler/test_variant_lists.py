"""Lists of variants that change while a scaler runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from carpool.errors import ConfigError
from scaler.variant_lists import VariantLists

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, *names: str) -> Path:
    """Replace the list in one step, as the registry does."""
    entries = [{"name": name, "accuracy": 0.7, "latencies_ms": {"1": 4.0}} for name in names]
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"app": "objects", "variants": entries}))
    fresh.replace(path)
    return path


def named(lists: VariantLists) -> dict[str, list[str]]:
    """Return the names of the variants in changed lists."""
    return {name: [v.name for v in found.variants] for name, found in lists.news().items()}


def test_replaced_list_is_read_once(tmp_path: Path) -> None:
    """A list is read again only if its file was replaced."""
    path = write(tmp_path / "variants.json", "small")
    lists = VariantLists({"objects": path})
    assert ["small"] == [v.name for v in lists.read("objects").variants]
    assert {} == named(lists)
    write(path, "small", "large")
    assert {"objects": ["small", "large"]} == named(lists)
    assert {} == named(lists)


def test_a_list_that_cannot_be_read_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing or malformed list is logged once, and read again when it is valid."""
    path = write(tmp_path / "variants.json", "small")
    lists = VariantLists({"objects": path})
    lists.read("objects")
    path.write_text('{"variants": [')
    assert [{}, {}] == [named(lists), named(lists)]
    assert 1 == len(caplog.records)
    path.unlink()
    assert [{}, {}] == [named(lists), named(lists)]
    assert 2 == len(caplog.records)
    assert all("its variants are unchanged" in line for line in caplog.messages)
    write(path, "large")
    assert {"objects": ["large"]} == named(lists)


def test_missing_list_prevents_start(tmp_path: Path) -> None:
    """A scaler with a mistyped option does not start, and the error names the file."""
    lists = VariantLists({"objects": tmp_path / "none.json"})
    with pytest.raises(ConfigError, match=r"none\.json"):
        lists.read("objects")


def test_list_does_not_replace_models_of_scenario(tmp_path: Path) -> None:
    """A list does not replace the models of a scenario."""
    path = write(tmp_path / "variants.json", "small")
    lists = VariantLists({"objects": path})
    lists.leave(["objects"])
    write(path, "large")
    assert {} == named(lists)
