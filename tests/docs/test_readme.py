"""The README's code runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_policy_example_and_its_drive_run() -> None:
    """A reader who copies both blocks gets a policy that works, and its mean batch."""
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert 2 == len(blocks)
    names: dict[str, Any] = {"__name__": __name__}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert 1000 == len(names["ends"])
    assert all(end.state.value == "done" for end in names["ends"])
