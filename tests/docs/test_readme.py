"""The README's code runs as it is printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("quick_checks")
def test_the_policy_example_and_its_check_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader who writes the one into its file and runs the other has a policy that holds."""
    file, check = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert file.startswith("# halves.py\n")
    (tmp_path / "halves.py").write_text(file, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    exec(compile(check, "README.md", "exec"), {"__name__": __name__})
    assert "Halves keeps every promise" in capsys.readouterr().out
