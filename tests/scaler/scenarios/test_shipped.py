"""Scenarios that come with Carpool are found by name, wherever one is."""

from __future__ import annotations

from pathlib import Path

import pytest

from carpool.errors import ConfigError
from scaler.scenarios import shipped
from scaler.scenarios.scenario_file import read_scenario


@pytest.mark.parametrize("name", ["osvt", "osvt.yaml"])
def test_a_name_is_enough(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder without it, the shipped one is read, with the tables beside it."""
    monkeypatch.chdir(tmp_path)
    assert {"detect", "recognise"} <= {f.name for f in read_scenario(Path(name)).functions}


def test_a_file_here_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user has under the name is the user's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "osvt").write_text("models: {}")
    assert Path("osvt") == shipped.find(Path("osvt"))


@pytest.mark.parametrize("name", ["nowhere", "gone/osvt.yaml"])
def test_a_name_that_nothing_has_is_told_those_there_are(name: str) -> None:
    """A path with a folder is never a shipped scenario's."""
    with pytest.raises(ConfigError, match=r"one of the scenarios .*osvt, osvt-bursty"):
        read_scenario(Path(name))


def test_every_shipped_scenario_can_be_read() -> None:
    """The names that are listed are scenarios."""
    for name in shipped.names():
        assert read_scenario(Path(name)).functions
