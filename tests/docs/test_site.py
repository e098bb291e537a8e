"""The documentation's site is complete, has no dead links, and needs no network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("site")]  # it is built once
pytest.importorskip("mkdocs", reason="the extra docs has it")
ROOT = Path(__file__).resolve().parents[2]
_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class _Page(HTMLParser):
    """Resources, links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.places.add(values.get("id", ""))
        if tag == "a":
            self.links.append(values.get("href", ""))
        elif tag in _LOADED and values.get("rel") != "canonical":
            self.loaded.append(values.get(_LOADED[tag], ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make site` does; any warning fails it."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == built.returncode, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    """Return every page of the site, parsed."""
    return {path: _Page(path) for path in site.rglob("*.html")}


def _local(path: Path, target: str) -> tuple[Path, str]:
    parts = urlsplit(target)
    return (path.parent / unquote(parts.path)).resolve() if parts.path else path, parts.fragment


def test_no_bytecode_is_published(site: Path) -> None:
    """Bytecode from the import of the hooks is not left beside the pages."""
    assert [] == [*site.rglob("*.py[co]"), *site.rglob("__pycache__")]


def test_site_loads_no_external_files(site: Path, pages: dict[Path, _Page]) -> None:
    """Scripts, styles, fonts and images are files of the site."""
    loaded = [(path, target) for path, page in pages.items() for target in page.loaded if target]
    assert [] == [each for each in loaded if urlsplit(each[1]).scheme not in ("", "data")]
    there = [(path, t) for path, t in loaded if path.name != "404.html" and t[:5] != "data:"]
    assert [] == [(path, target) for path, target in there if not _local(path, target)[0].exists()]
    styles = "".join(path.read_text() for path in site.rglob("*.css"))
    assert [] == re.findall(r"url\([\"']?(?:https?:)?//[^)]*", styles)


def test_link_targets_exist(pages: dict[Path, _Page]) -> None:
    """Each link leads to a page of the site, and each fragment to a place in that page."""
    lost = []
    for path, page in pages.items():
        local = [t for t in page.links if t and not urlsplit(t).scheme and path.name != "404.html"]
        for target in local:
            file, place = _local(path, target)
            file = file / "index.html" if file.is_dir() else file
            if not file.exists() or (file in pages and unquote(place) not in pages[file].places):
                lost.append((path.name, target))
    assert [] == lost


def test_every_page_is_reachable_from_start_page(site: Path, pages: dict[Path, _Page]) -> None:
    """No page of the site is an orphan."""
    reached: set[Path] = set()
    waiting = [site / "index.html"]
    while waiting:
        path = waiting.pop()
        if path not in reached and path in pages:
            reached.add(path)
            waiting += [_local(path, t)[0] for t in pages[path].links if not urlsplit(t).scheme]
    assert {site / "404.html"} == set(pages) - reached


def test_no_markdown_markup_is_left_in_text(site: Path) -> None:
    """No Markdown markup is left in the text of a page."""
    left = {}
    for path in site.rglob("*.html"):
        text = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", path.read_text(), flags=re.DOTALL)
        found = re.findall(r"<p>\s*(?:\||- |\* |\d+\. |```).*", text)
        if found:
            left[path.name] = found
    assert {} == left
