"""The pages about extensions name what may be imported, and every group of entry points."""

from __future__ import annotations

import re
import tomllib

from carpool import plugins
from tests.docs.snippets import ROOT, blocks, take

PAGES = {"scale": "scaling", "batch": "policies", "prewarm": "prewarm", "backend": "provider"}
SHOWN = "".join(block.text for page in PAGES.values() for block in blocks(f"docs/{page}.md"))
IMPORTS = re.findall(
    r"^from ((?:carpool|sidecar|scaler|faas_stack)[\w.]*) import (.+)$", SHOWN, re.MULTILINE
)
ENTRY_POINTS = {
    kind: [tomllib.loads(block.text) for block in take(f"docs/{page}.md", language="toml")]
    for kind, page in PAGES.items()
}


def test_shown_imports_are_public() -> None:
    """The page about stability names each module from which an extension imports."""
    public = (ROOT / "docs" / "api-stability.md").read_text(encoding="utf-8")
    assert {"carpool.scaling", "sidecar.core.policy"} <= {module for module, _ in IMPORTS}
    assert [] == [module for module, _ in IMPORTS if f"`{module}`" not in public]


def test_pages_show_every_group_of_entry_points() -> None:
    """The page of each kind shows the group that is searched, which the first table names."""
    table = (ROOT / "docs" / "own-policy.md").read_text(encoding="utf-8")
    assert plugins.GROUPS.keys() == PAGES.keys()
    for kind, group in plugins.GROUPS.items():
        assert [[group]] == [list(each["project"]["entry-points"]) for each in ENTRY_POINTS[kind]]
        assert f"| `{group}` |" in table
