"""The code in docs/own-policy.md runs as it is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.snippets import take

if TYPE_CHECKING:
    from pathlib import Path

FILE, CHECK = (block.text for block in take("docs/own-policy.md", language="python"))


@pytest.mark.usefixtures("quick_checks")
def test_the_policy_example_and_its_check_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Write the policy into its file and run the check of the page, which reports that it holds."""
    assert FILE.startswith("# halves.py\n")
    (tmp_path / "halves.py").write_text(FILE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    exec(compile(CHECK, "own-policy.md", "exec"), {"__name__": __name__})
    assert "Halves keeps every promise" in capsys.readouterr().out
