"""The processor's name, which identifies the machine of a profile."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

import pytest

from carpool.processor import processor, runtime

CPUINFO = """\
processor\t: 0
cpu family\t: 25
model\t\t: 17
model name\t: Some CPU 9999
stepping\t: 1

processor\t: 1
model name\t: another one
"""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (CPUINFO, "Some CPU 9999 (25-17-1)"),
        ("model name\t: Some CPU\n", "Some CPU"),
        (None, "an architecture"),
    ],
    ids=["with its numbers", "by name alone", "not told"],
)
def test_processor_name_is_as_precise_as_known(
    text: str | None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name has family, model and stepping if known, and is the architecture if nothing is."""

    def read(path: Path, encoding: str) -> str:
        assert ("/proc/cpuinfo", "utf-8") == (str(path), encoding)
        if text is None:
            raise FileNotFoundError
        return text

    monkeypatch.setattr(Path, "read_text", read)
    monkeypatch.setattr(platform, "processor", str)
    monkeypatch.setattr(platform, "machine", lambda: "an architecture")
    assert name == processor()


def test_the_runtime_is_known_without_loading_it() -> None:
    """The runtime is identified by its installed version."""
    assert f"onnxruntime {metadata.version('onnxruntime')}" == runtime()
