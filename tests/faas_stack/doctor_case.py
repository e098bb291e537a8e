"""Helper that runs the doctor on stack files and returns its findings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from faas_stack.doctor.command import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

__all__ = ["Doctor"]


class Doctor:
    """Runs the doctor on stack files in one folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def says(self, function: dict[str, Any], *options: str) -> list[dict[str, str]]:
        """Return the findings for a stack with one function, ``fn``."""
        return self.says_of({"fn": function}, *options)

    def says_of(self, functions: dict[str, Any], *options: str) -> list[dict[str, str]]:
        """Return the findings for a stack of ``functions`` whose images are built elsewhere."""
        bare = {"skip_build": True, "image": "fn:latest"}
        stack = {
            "provider": {"name": "openfaas"},
            "functions": {name: {**bare, **function} for name, function in functions.items()},
        }
        return self.says_of_text(yaml.safe_dump(stack), *options)

    def says_of_text(self, text: str, *options: str) -> list[dict[str, str]]:
        """Return the findings for a stack file, and check that the exit code matches them."""
        path = self.folder / "stack.yaml"
        path.write_text(text)
        code = main(["-f", str(path), "--json", *options])
        findings: list[dict[str, str]] = json.loads(self._capsys.readouterr().out)["findings"]
        assert bool(findings) == bool(code)
        return findings

    def compose(self, services: dict[str, Any]) -> None:
        """Write a compose file beside the stack file."""
        (self.folder / "compose.yaml").write_text(yaml.safe_dump({"services": services}))
