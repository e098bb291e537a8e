"""What attacks share: how much of them is tried, and the table of counts at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.attack.effort import Effort, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest.terminal import TerminalReporter


@pytest.fixture
def effort(record_property: Callable[[str, object], None]) -> Effort:
    """How much this test tries (`tests.attack.effort`)."""
    return Effort(record_property)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Say what was tried; counts travel with the reports, whichever process ran the tests."""
    outcomes = ("passed", "failed")
    reports = [each for name in outcomes for each in terminalreporter.stats.get(name, [])]
    lines = table([each for each in reports if getattr(each, "when", "") == "call"])
    if lines:
        terminalreporter.section("attacks")
        for line in lines:
            terminalreporter.line(line)
