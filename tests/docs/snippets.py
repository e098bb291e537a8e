"""The blocks of code in the pages, and which of them tests run.

A test gets the blocks that it runs by ``take``, when its module is imported. The others are in
``not_run.yaml``, each with its reason; ``test_snippets.py`` fails if one is in neither. Drawings,
fences of the language ``drawing``, are no code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    page.relative_to(ROOT).as_posix()
    for folder in ("docs", "examples", "templates", "charts", ".", "benchmarks")
    for page in sorted((ROOT / folder).glob("**/*.md" if folder.isalpha() else "*.md"))
    if "results" not in page.parts
]


@dataclass(frozen=True)
class Block:
    """A block of code: ``language`` is that of its fence, and empty if it is indented."""

    page: str
    line: int
    language: str
    text: str

    @property
    def first(self) -> str:
        """Return the first line that is not a comment, which identifies the block."""
        text = re.sub(r"\\\n *", "", self.text)
        lines = [line for line in text.strip().splitlines() if not line.startswith("#")]
        return lines[0].strip()


TAKEN: set[Block] = set()


@cache
def blocks(page: str) -> tuple[Block, ...]:
    """Return the blocks of a page in order, without fences and indentation."""
    blocks_alone = MarkdownIt().disable("inline")
    tokens = blocks_alone.parse((ROOT / page).read_text(encoding="utf-8"))
    return tuple(
        Block(page, token.map[0] + 1, token.info, token.content)
        for token in tokens
        if token.type in {"fence", "code_block"} and token.map
    )


def take(
    page: str, first: str = "", *, within: str = "", language: str | None = None
) -> list[Block]:
    """Return the blocks of ``page`` in whose ``Block.first`` the pattern ``first`` is found.

    The caller runs each of them in a test. With ``within``, only those whose text contains it; with
    ``language``, only those of that language.
    """
    found = [
        block
        for block in blocks(page)
        if re.search(first, block.first)
        and within in block.text
        and language in {None, block.language}
    ]
    assert found, f"{page} has no such block"
    TAKEN.update(found)
    return found


def take_one(page: str, first: str = "", *, within: str = "", language: str | None = None) -> str:
    """Return the text of the only such block; the arguments are those of `take`."""
    (block,) = take(page, first, within=within, language=language)
    return block.text
