"""What attacks share: the number of attempts, and the table of counts at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.attack.effort import Effort, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest.terminal import TerminalReporter


@pytest.fixture
def effort(record_property: Callable[[str, object], None]) -> Effort:
    """Return the number of attempts of this test (`tests.attack.effort`)."""
    return Effort(record_property)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print the counts, which the reports carry from whichever process ran the tests."""
    outcomes = ("passed", "failed")
    reports = [each for name in outcomes for each in terminalreporter.stats.get(name, [])]
    lines = table([each for each in reports if getattr(each, "when", "") == "call"])
    if lines:
        terminalreporter.section("attacks")
        for line in lines:
            terminalreporter.line(line)
