"""A cache that drops the least recently used values."""

from __future__ import annotations

from carpool.recent import Recent, Same


def test_value_is_computed_once_and_least_recent_is_dropped() -> None:
    """A value is computed once while it is kept, and each use makes it the most recent."""
    made: list[str] = []

    def twice(key: str) -> str:
        made.append(key)
        return key * 2

    def value(key: str) -> str:
        return recent.of(key, lambda: twice(key))

    recent: Recent[str] = Recent(2)
    assert ["aa", "bb", "aa", "cc", "aa"] == [value(key) for key in "abaca"]
    assert list("abc") == made
    assert "bb" == value("b")
    assert list("abcb") == made


def test_unhashable_key_parts_are_compared_by_identity() -> None:
    """An unhashable part of a key is compared by identity, not equality."""
    recent: Recent[int] = Recent(8)
    one, other = [1], [1]
    assert 1 == recent.of((Same(one), 2), lambda: 1)
    assert 2 == recent.of((Same(other), 2), lambda: 2)
    assert 1 == recent.of((Same(one), 2), lambda: 3)


def test_lower_limit_drops_oldest_values() -> None:
    """A lower limit drops the oldest values at once."""
    recent: Recent[int] = Recent(8)
    for key in "abcde":
        recent.of(key, lambda: 1)
    recent.keep(2)
    assert [1, 1] == [recent.of(key, lambda: 2) for key in "de"]
    assert [2, 1, 2] == [recent.of(key, lambda: 2) for key in "aed"]
