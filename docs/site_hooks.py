"""Hooks with which MkDocs makes a site of these pages; mkdocs.yml names this file.

Pages link as GitHub needs it, also to what is outside docs/. On the site every such link stays
inside: other Markdown pages of the project become pages, folders and sources become pages that show
them. They are found by following links, so that what is linked is there and nothing else is.
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
OUTSIDE = PurePosixPath("repository")  # where the site has what is outside docs/
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_FENCED = re.compile(r"^( *)(```+|~~~+).*?^\1\2[^\n]*$", re.DOTALL | re.MULTILINE)
_CELLS = re.compile(r"^\|.*\|$", re.MULTILINE)
_SPAN = re.compile(r"`[^`\n]*`")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml", ".sh": "bash"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link to outside docs/."""
    waiting = [DOCS / file.src_uri for file in files.documentation_pages()]
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for path in _linked(page):
            if path not in seen:
                seen.add(path)
                if not path.is_relative_to(DOCS) or path.is_dir():
                    files.append(_file(path, config))
                    waiting += [path] if path.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to where the site has things, and write tables as Python-Markdown reads them."""
    del config, files
    source = _source(PurePosixPath(page.file.src_uri))
    text = _outside_fences(markdown, lambda part: _CELLS.sub(_plain_bars, part))
    if source.suffix != ".md":
        return text
    here = PurePosixPath(page.file.src_uri).parent

    def led(link: re.Match[str]) -> str:
        target = (source.parent / link[1]).resolve()
        if not target.exists():
            return link[0]  # MkDocs says so
        return os.path.relpath(_uri(target), here) + (link[2] or "")

    return _outside_fences(text, lambda part: _LINK.sub(led, part))


def _linked(page: Path) -> Iterator[Path]:
    """What there is of the files and folders that a page links to."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.finditer(text):
        target = (page.parent / link[1]).resolve()
        if target.exists() and target.is_relative_to(ROOT):
            yield target / "README.md" if (target / "README.md").is_file() else target


def _uri(path: Path) -> PurePosixPath:
    """Where the site has a file or folder of the repository."""
    if (path / "README.md").is_file():
        return _uri(path / "README.md")
    if path.is_file() and path.is_relative_to(DOCS):
        return PurePosixPath(path.relative_to(DOCS).as_posix())
    place = OUTSIDE / path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return place / "index.md"
    shown = path.suffix in (".md", ".png", ".svg")
    return place if shown else place.with_name(f"{place.name}.md")


def _source(uri: PurePosixPath) -> Path:
    """What a page of the site is made of: a page in Markdown, or the file or folder it shows."""
    if not uri.is_relative_to(OUTSIDE):
        return DOCS / uri
    path = ROOT / uri.relative_to(OUTSIDE)
    return path if path.is_file() else path.with_suffix("")


def _file(path: Path, config: MkDocsConfig) -> File:
    uri = str(_uri(path))
    if path.suffix in (".md", ".png", ".svg"):
        return File.generated(config, uri, abs_src_path=str(path))
    return File.generated(config, uri, content=_listing(path) if path.is_dir() else _code(path))


def _listing(folder: Path) -> str:
    names = sorted(f"- `{path.name}{'/' * path.is_dir()}`" for path in folder.iterdir())
    kept = [name for name in names if "__pycache__" not in name]
    return "\n".join([_unsearched(folder), *kept, ""])


def _code(path: Path) -> str:
    language = _LANGUAGES.get(path.suffix, "text")
    fence = "`" * 5
    text = path.read_text(encoding="utf-8")
    return f"{_unsearched(path)}{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _unsearched(path: Path) -> str:
    """The head of a page that shows a source: a search is for what is written about it."""
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path.relative_to(ROOT)}\n\n"


def _outside_fences(text: str, change: Callable[[str], str]) -> str:
    """``text`` with everything changed that is not a fenced block of code."""
    parts, end = [], 0
    for fenced in _FENCED.finditer(text):
        parts += [change(text[end : fenced.start()]), fenced[0]]
        end = fenced.end()
    return "".join([*parts, change(text[end:])])


def _plain_bars(row: re.Match[str]) -> str:
    r"""A row in which code has ``|`` for GitHub's ``\|``."""
    return _SPAN.sub(lambda span: span[0].replace(r"\|", "|"), row[0])
