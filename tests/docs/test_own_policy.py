"""The check in docs/own-policy.md runs as it is printed, on the example to which it links."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.snippets import ROOT, blocks, take, take_one

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = [block.text for block in take("docs/scaling.md", language="python")]
(FILE,) = [text for text in EXAMPLES if "class Halves" in text]
CHECK = take_one("docs/own-policy.md", "import check_policy")


PAGES = ("policies", "scaling", "own-policy", "prewarm")
SHOWN = "".join(block.text for page in PAGES for block in blocks(f"docs/{page}.md"))
IMPORTS = re.findall(
    r"^from ((?:carpool|sidecar|scaler|faas_stack)[\w.]*) import (.+)$", SHOWN, re.MULTILINE
)


def test_shown_imports_are_public() -> None:
    """The page about stability names each module from which an extension imports."""
    public = (ROOT / "docs" / "api-stability.md").read_text(encoding="utf-8")
    assert {"carpool.scaling", "sidecar.core.policy"} <= {module for module, _ in IMPORTS}
    assert [] == [module for module, _ in IMPORTS if f"`{module}`" not in public]


@pytest.mark.usefixtures("quick_checks")
def test_example_policy_passes_its_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Write the policy into its file and run the check of the page, which reports that it holds."""
    (tmp_path / "halves.py").write_text(FILE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    exec(compile(CHECK, "own-policy.md", "exec"), {"__name__": __name__})
    assert "Halves keeps every promise" in capsys.readouterr().out
