"""The code in docs/own-policy.md runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "own-policy.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("quick_checks")
def test_the_policy_example_and_its_check_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader who writes the one into its file and runs the other has a policy that holds."""
    file, check = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert file.startswith("# halves.py\n")
    (tmp_path / "halves.py").write_text(file, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    exec(compile(check, "own-policy.md", "exec"), {"__name__": __name__})
    assert "Halves keeps every promise" in capsys.readouterr().out
