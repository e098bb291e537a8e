"""docs/scaling.md and docs/prewarm.md say what the code does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from carpool import plugins
from carpool.prewarm_windows import Windows
from carpool.testing import check_policy
from tests.docs.snippets import take

DOCS = Path(__file__).parents[2] / "docs"
CODE = [block.text for block in take("docs/scaling.md", language="python")]
ENTRY_POINTS = take("docs/scaling.md", language="toml")


@pytest.mark.parametrize(("page", "kind"), [("scaling.md", "scale"), ("prewarm.md", "prewarm")])
def test_every_built_in_policy_has_a_line_that_says_when_to_choose_it(
    page: str, kind: plugins.Kind
) -> None:
    """The first table is about the policies that there are, and no others."""
    text = (DOCS / page).read_text(encoding="utf-8")
    table = text.partition("## Which one")[2].partition("\n\n**")[0]
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(plugins.BUILT_IN[kind]) == sorted(named)


@pytest.fixture
def printed(
    monkeypatch: pytest.MonkeyPatch, quick_checks: None, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """Run the blocks of Python one after the other as printed, and return what they define."""
    del quick_checks
    monkeypatch.syspath_prepend(DOCS.parent / "examples" / "policy")
    names: dict[str, Any] = {"__name__": __name__}
    for block in CODE:
        exec(compile(block, "scaling.md", "exec"), names)
    assert "Headroom keeps every promise" in capsys.readouterr().out
    return names


def test_the_policies_of_ones_own_work(printed: dict[str, Any]) -> None:
    """The batch policy keeps every promise; the prewarm policy restores what it learned."""
    assert "keeps every promise" in str(check_policy(printed["Halves"]))
    policies = [plugins.build(printed["TwiceTheLongest"], {}) for _ in range(2)]
    policies[0].observe(90.0, 0.0)
    policies[1].absorb(policies[0].to_dict())
    assert Windows(0.0, 180.0) == policies[1].windows(0.0)


def test_every_point_has_its_entry_point_on_the_page() -> None:
    """The page has all groups of entry points that are searched, and no others."""
    tables = [tomllib.loads(block.text)["project"]["entry-points"] for block in ENTRY_POINTS]
    assert sorted(plugins.GROUPS.values()) == sorted(group for table in tables for group in table)


def test_the_policy_on_the_page_is_the_example_and_short() -> None:
    """The page shows the policy that the example installs, in at most 15 lines."""
    block, *_ = CODE
    example = (DOCS.parent / "examples" / "policy" / "headroom.py").read_text(encoding="utf-8")
    assert example.endswith(f"\n\n{block}")
    assert 15 >= sum(bool(line.strip()) for line in block.splitlines())
