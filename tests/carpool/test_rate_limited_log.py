"""What happens often is said seldom, and nothing is lost from the count."""

from __future__ import annotations

from carpool.rate_limited_log import RateLimit


def test_it_is_said_at_once_and_then_seldom() -> None:
    """With how often it happened since."""
    seldom = RateLimit(60.0)
    assert [1, 0, 0, 3, 0, 2] == [seldom.due(now) for now in (5.0, 6.0, 64.9, 65.0, 66.0, 500.0)]
