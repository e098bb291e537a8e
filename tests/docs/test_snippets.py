"""Every block of code in the pages is run by a test, or listed with the reason why none runs it."""

from __future__ import annotations

import importlib
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.docs.snippets import PAGES, ROOT, TAKEN, Block, blocks

BLOCKS = [block for page in PAGES for block in blocks(page)]
NOT_RUN: dict[str, dict[str, str]] = yaml.safe_load(
    Path(__file__).with_name("not_run.yaml").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def run() -> set[Block]:
    """What tests take; modules that skip as a whole have taken theirs before."""
    for file in sorted(ROOT.glob("tests/**/test_*.py")):
        if "tests.docs.snippets" in file.read_text(encoding="utf-8"):
            with suppress(pytest.skip.Exception):
                importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    return TAKEN


def _reason(block: Block) -> str | None:
    return NOT_RUN.get(block.page, {}).get(block.first)


def test_every_block_is_run_or_says_why_not(run: set[Block]) -> None:
    """A new block needs a test, or a line in not_run.yaml."""
    known = [block for block in BLOCKS if block in run or _reason(block)]
    assert [] == [f"{b.page}:{b.line}: {b.first}" for b in BLOCKS if b not in known]


def test_no_reason_is_left_over(run: set[Block]) -> None:
    """Each is about a block that is there, and that no test runs."""
    needed = {(block.page, block.first) for block in BLOCKS if block not in run}
    given = {(page, first) for page, reasons in NOT_RUN.items() for first in reasons}
    assert set() == given - needed


def test_blocks_are_found_at_all() -> None:
    """With and without fences."""
    assert {"", "bash", "console", "json", "python", "toml", "yaml"} <= {b.language for b in BLOCKS}
