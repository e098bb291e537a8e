"""docs/scaling.md and docs/prewarm.md say what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from carpool import plugins
from carpool.prewarm_windows import Windows
from tests.docs.snippets import take, take_one

DOCS = Path(__file__).parents[2] / "docs"
CODE = [block.text for block in take("docs/scaling.md", language="python")]
PREWARM = take_one("docs/prewarm.md", language="python")


@pytest.mark.parametrize(("page", "kind"), [("scaling.md", "scale"), ("prewarm.md", "prewarm")])
def test_first_table_lists_exactly_the_built_in_policies(page: str, kind: plugins.Kind) -> None:
    """The first table is about the policies that there are, and no others."""
    text = (DOCS / page).read_text(encoding="utf-8")
    table = text.partition("## Which one")[2].partition("\n\n**")[0]
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert sorted(plugins.BUILT_IN[kind]) == sorted(named)


@pytest.mark.usefixtures("quick_checks")
def test_example_scaling_policy_is_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run the blocks of Python one after the other as printed."""
    monkeypatch.syspath_prepend(DOCS.parent / "examples" / "policy")
    names: dict[str, Any] = {"__name__": __name__}
    for block in CODE:
        exec(compile(block, "scaling.md", "exec"), names)
    assert "Headroom keeps every promise" in capsys.readouterr().out


def test_example_prewarm_policy_restores_what_it_learned() -> None:
    """A policy that absorbs what another has learned returns the same windows."""
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(PREWARM, "prewarm.md", "exec"), names)
    policies = [plugins.build(names["TwiceTheLongest"], {}) for _ in range(2)]
    policies[0].observe(90.0, 0.0)
    policies[1].absorb(policies[0].to_dict())
    assert Windows(0.0, 180.0) == policies[1].windows(0.0)


def test_page_shows_short_example_policy() -> None:
    """The page shows the policy that the example installs, in at most 15 lines."""
    block, *_ = CODE
    example = (DOCS.parent / "examples" / "policy" / "headroom.py").read_text(encoding="utf-8")
    assert example.endswith(f"\n\n{block}")
    assert 15 >= sum(bool(line.strip()) for line in block.splitlines())
