"""Lists of variants that are registered while a scaler runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from carpool.errors import ConfigError
from scaler.variant_lists import VariantLists

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, *names: str) -> Path:
    """A list, in the place of the one there was, in one step as the registry does it."""
    entries = [{"name": name, "accuracy": 0.7, "latencies_ms": {"1": 4.0}} for name in names]
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"app": "objects", "variants": entries}))
    fresh.replace(path)
    return path


def named(lists: VariantLists) -> dict[str, list[str]]:
    """What is new, by name."""
    return {name: [v.name for v in found.variants] for name, found in lists.news().items()}


def test_what_is_registered_later_is_news_once(tmp_path: Path) -> None:
    """A list is read again when it is another file, and only then."""
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
    """Gone or ill-formed, it is said once; whole again, it is news."""
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


def test_a_list_that_is_not_there_at_first_is_an_error(tmp_path: Path) -> None:
    """A scaler does not start with a mistyped option, and names it."""
    lists = VariantLists({"objects": tmp_path / "none.json"})
    with pytest.raises(ConfigError, match=r"none\.json"):
        lists.read("objects")


def test_lists_of_others_are_left_alone(tmp_path: Path) -> None:
    """A scenario's models are not replaced by a list's."""
    path = write(tmp_path / "variants.json", "small")
    lists = VariantLists({"objects": path})
    lists.leave(["objects"])
    write(path, "large")
    assert {} == named(lists)
