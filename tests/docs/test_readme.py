"""The README's code runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("quick_checks")
def test_the_policy_example_and_its_check_run(capsys: pytest.CaptureFixture[str]) -> None:
    """A reader who copies both blocks gets a policy that keeps every promise."""
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert 2 == len(blocks)
    names: dict[str, Any] = {"__name__": __name__}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert "Halves keeps every promise" in capsys.readouterr().out
