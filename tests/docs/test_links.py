"""Links between the project's own pages lead somewhere, and every page can be found."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TOP = sorted(ROOT.glob("*.md"))
PAGES = [*TOP, *sorted(DOCS.rglob("*.md")), ROOT / "benchmarks" / "README.md"]
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def _links(page: Path) -> list[str]:
    """Return the targets of the page's links to other pages and headings, outside code."""
    text = _SPAN.sub("`", _FENCED.sub("", page.read_text(encoding="utf-8")))
    lines = [line for line in text.splitlines() if not line.startswith("    ")]
    found = _LINK.findall("\n".join(lines))
    return [target for target in found if not target.startswith(("http:", "https:", "mailto:"))]


def _anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number, anchor = 0, plain
        while anchor in found:
            number += 1
            anchor = f"{plain}-{number}"
        found.add(anchor)
    return found


def _leads_nowhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return True
    return bool(anchor) and file.suffix == ".md" and anchor not in _anchors(file)


def test_link_targets_exist() -> None:
    """Linked files exist, and so do the headings that anchors name."""
    found = [(page, target) for page in PAGES for target in _links(page)]
    assert [] == [each for each in found if _leads_nowhere(*each)]


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    """The check above finds a broken link, and does not take code for links."""
    page = tmp_path / "page.md"
    page.write_text("# One & two\n[a](gone.md) [b](#one--two) [c](#three)\n`[d](no.md)`\n")
    assert ["gone.md", "#one--two", "#three"] == _links(page)
    broken = [target for target in _links(page) if _leads_nowhere(page, target)]
    assert ["gone.md", "#three"] == broken


def test_every_page_is_reachable_from_readme() -> None:
    """No page of the documentation is an orphan."""
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        waiting += [(page.parent / target.partition("#")[0]).resolve() for target in _links(page)]
    assert set() == {*DOCS.rglob("*.md"), *TOP} - reached


def test_the_index_lists_every_page() -> None:
    """docs/README.md links to each page, and to the index of each folder."""
    listed = {(DOCS / target.partition("#")[0]).resolve() for target in _links(DOCS / "README.md")}
    pages = {*DOCS.glob("*.md"), *(DOCS / "policies").glob("*.md"), DOCS / "adr" / "README.md"}
    assert set() == pages - listed - {DOCS / "README.md"}
