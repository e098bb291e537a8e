"""Scenarios that ship with Carpool are found by name from any folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.errors import ConfigError
from scaler.scenarios import shipped
from scaler.scenarios.scenario_file import read_scenario


@pytest.mark.parametrize("name", ["osvt", "osvt.yaml"])
def test_shipped_scenario_is_found_by_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder without the file, the shipped scenario is read with its tables."""
    monkeypatch.chdir(tmp_path)
    assert {"detect", "recognise"} <= {f.name for f in read_scenario(Path(name)).functions}


def test_local_file_takes_precedence_over_shipped_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's file takes precedence over a shipped scenario of the same name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "osvt").write_text("models: {}")
    assert Path("osvt") == shipped.find(Path("osvt"))


@pytest.mark.parametrize("name", ["nowhere", "gone/osvt.yaml"])
def test_error_for_unknown_name_lists_shipped_scenarios(name: str) -> None:
    """The error lists the shipped scenarios, also for a path with a folder."""
    with pytest.raises(ConfigError, match=r"one of the scenarios .*osvt, osvt-bursty"):
        read_scenario(Path(name))


def test_every_shipped_scenario_can_be_read() -> None:
    """Each listed name is a valid scenario."""
    for name in shipped.names():
        assert read_scenario(Path(name)).functions
