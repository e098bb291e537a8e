"""Frequent events are logged rarely, without losing count."""

from __future__ import annotations

from carpool.rate_limited_log import RateLimit


def test_first_event_is_due_at_once_and_later_ones_per_interval() -> None:
    """The first event is due at once, later ones per interval with their number since."""
    seldom = RateLimit()
    assert [1, 0, 0, 3, 0, 2] == [seldom.due(now) for now in (5.0, 6.0, 64.9, 65.0, 66.0, 500.0)]
