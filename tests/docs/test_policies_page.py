"""docs/policies.md says what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from carpool import plugins
from carpool.settings import FunctionSettings
from carpool.testing import check_policy
from sidecar.conformance.promises import PROMISES
from sidecar.policies.choice import build_policy
from sidecar.policies.fixed import FixedWindow
from sidecar.policies.knobs import KNOBS
from tests.docs.snippets import take, take_one

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text(encoding="utf-8")
CODE = take("docs/policies.md", language="python")
BROKEN = take_one("docs/policies.md", "^Patient breaks a promise")
PARAMETERS = [*take("docs/policies.md", "^functions:"), *take("docs/policies.md", "batch.params")]


def test_first_table_lists_exactly_the_built_in_policies() -> None:
    """The first table is about the policies that there are, and no others."""
    table = PAGE.partition("## Which one")[2].partition("\n- ")[0]
    named = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert set(plugins.BUILT_IN["batch"]) == set(named)
    assert len(named) == len(plugins.BUILT_IN["batch"])


@pytest.mark.parametrize("knob", KNOBS, ids=lambda knob: str(knob.name))
def test_every_translated_parameter_has_its_row(knob: plugins.Knob) -> None:
    """The translation is printed from the table that does it."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{knob.name}` |")]
    assert (knob.parameter or "refused") in line
    assert knob.note in line


def test_every_promise_is_listed() -> None:
    """A reader knows what `check_policy` checks."""
    assert [] == [promise for promise in PROMISES if f"- {promise}\n" not in PAGE]


def test_the_parameters_shown_are_accepted() -> None:
    """`fixed` accepts what the page says to write in batch.params."""
    shown = [
        text
        for block in PARAMETERS
        for text in re.findall(r"com\.carpool\.batch\.params: '(.*)'", block.text)
    ]
    assert 3 == len(shown)
    for text in shown:
        settings = FunctionSettings(
            batch_policy="fixed", batch_max=64, batch_params=json.loads(text)
        )
        assert isinstance(build_policy(settings), FixedWindow)


@pytest.mark.usefixtures("quick_checks")
def test_example_policy_is_written_checked_and_driven(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run the blocks of Python one after the other as they are printed."""
    names: dict[str, Any] = {"__name__": __name__}
    for block in CODE:
        exec(compile(block.text, "policies.md", "exec"), names)
    assert "Patient keeps every promise" in str(names["report"])
    assert 1000 == len(names["ends"])
    assert 0 == names["late"]
    assert capsys.readouterr().out


@pytest.mark.usefixtures("quick_checks")
def test_report_on_broken_promise_matches_page() -> None:
    """Check the policy of the page with a division by zero in its ``decide``."""
    names: dict[str, Any] = {"__name__": __name__}
    broken = CODE[0].text.replace("Decision(waiting.limit)", "Decision(1 / 0)")
    exec(compile(broken, "patient.py", "exec"), names)
    with pytest.raises(AssertionError) as report:
        check_policy(names["Patient"], {"share": 0.5})
    assert BROKEN.strip() == str(report.value)
