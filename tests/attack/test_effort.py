"""The accounting of the attacks: the requested number is tried, and what was tried is reported."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.attack.effort import PROPERTY, Effort, table


@dataclass
class Report:
    """A test's report."""

    user_properties: list[tuple[str, object]] = field(default_factory=list)
    failed: bool = False

    def record(self, name: str, value: object) -> None:
        self.user_properties.append((name, value))


def test_variable_sets_number_of_attacks() -> None:
    """Without the variable the short number is tried; with it, that share of the full number."""
    report = Report()
    assert [0, 1, 2] == list(Effort(report.record, {}).rounds("a", full=100, short=3))
    long = Effort(report.record, {"attack_count": "0.1"})
    assert list(range(10)) == list(long.rounds("a", full=100, short=3))
    assert ["a", "b"] == Effort(report.record, {}).some("abc", 2)
    assert ["a", "b", "c"] == long.some("abc", 2)
    assert [(PROPERTY, ["a", 3]), (PROPERTY, ["a", 10])] == report.user_properties


def test_loop_ends_at_its_time_limit() -> None:
    """At least one attack is tried, and only attempted ones are counted."""
    report = Report()
    hurried = Effort(report.record, {"attack_count": "1", "attack_seconds": "0.000001"})
    tried = list(hurried.rounds("a", full=10**9, short=1))
    assert [(PROPERTY, ["a", len(tried)])] == report.user_properties
    assert 1 <= len(tried) < 10**6


def test_failed_loop_reports_its_count() -> None:
    """A loop that an assertion ends reports its count; the table adds up the tests."""
    good, bad = Report(), Report(failed=True)
    rounds = Effort(bad.record, {}).rounds("a", full=1, short=9)
    assert [0, 1] == [next(rounds), next(rounds)]
    Effort(good.record, {}).count("a", 5)
    Effort(good.record, {}).count("bee", 1000)
    assert ["a            7  1 failed", "bee      1,000  held"] == table([good, bad])
