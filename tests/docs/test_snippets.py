"""Every block of code in the pages is run by a test, or listed with the reason why it is not."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from tests.docs.snippets import PAGES, ROOT, TAKEN, blocks

EVERY = [block for page in PAGES for block in blocks(page)]
DRAWINGS = [block for block in EVERY if block.language == "drawing"]
BLOCKS = [block for block in EVERY if block not in DRAWINGS]
COMMAND = re.compile(
    r"^(?:\$ )?(?:carpool|curl|docker|faas-cli|git|helm|kubectl|make|pip|python)(?: \S+)+$",
    re.MULTILINE,
)
LIST = Path(__file__).with_name("not_run.yaml").read_text(encoding="utf-8")
NOT_RUN: dict[str, dict[str, list[str]]] = yaml.safe_load(LIST)

GIVEN = Counter(
    f"{page}: {first}"
    for pages in NOT_RUN.values()
    for page, firsts in pages.items()
    for first in firsts  # repeated for blocks that begin alike
)


@pytest.fixture(scope="module")
def needed() -> Counter[str]:
    """Count the blocks that no test takes; modules that skip have taken theirs before."""
    for file in sorted(ROOT.glob("tests/**/test_*.py")):
        if "tests.docs.snippets" in file.read_text(encoding="utf-8"):
            with suppress(pytest.skip.Exception):
                importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    return Counter(f"{block.page}: {block.first}" for block in BLOCKS if block not in TAKEN)


def test_every_block_is_run_or_listed_with_reason(needed: Counter[str]) -> None:
    """A new block needs a test, or a line in not_run.yaml."""
    assert Counter() == needed - GIVEN


def test_listed_reasons_have_a_block_that_is_not_run(needed: Counter[str]) -> None:
    """Each entry names an existing block that no test runs."""
    assert Counter() == GIVEN - needed


def test_drawings_have_no_command() -> None:
    """A command is not declared a drawing; in drawings, the names of programs stand in columns."""
    assert DRAWINGS
    assert [] == [block for block in DRAWINGS if COMMAND.search(block.text)]


def test_files_named_in_reasons_exist() -> None:
    """The tests and benchmarks that the list mentions exist."""
    named = re.findall(r"\b(?:tests|benchmarks)/[\w/.]*\w", LIST)
    assert named
    assert [] == [path for path in named if not (ROOT / path).exists()]


def test_blocks_are_found() -> None:
    """Blocks with and without fences are found."""
    assert {"", "bash", "console", "json", "python", "toml", "yaml"} <= {b.language for b in BLOCKS}
