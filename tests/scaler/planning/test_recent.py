"""What was computed lately is computed once, and what was not used the longest is forgotten."""

from __future__ import annotations

from scaler.planning.recent import Recent, Same


def test_a_value_is_made_once_and_the_least_used_one_goes() -> None:
    """Asking for a key makes it the latest again."""
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


def test_a_part_of_a_key_may_be_what_cannot_be_hashed() -> None:
    """It is this very object that counts, not what is equal to it."""
    recent: Recent[int] = Recent(8)
    one, other = [1], [1]
    assert 1 == recent.of((Same(one), 2), lambda: 1)
    assert 2 == recent.of((Same(other), 2), lambda: 2)
    assert 1 == recent.of((Same(one), 2), lambda: 3)


def test_fewer_may_be_kept_from_now_on() -> None:
    """The oldest go at once."""
    recent: Recent[int] = Recent(8)
    for key in "abcde":
        recent.of(key, lambda: 1)
    recent.keep(2)
    assert [1, 1] == [recent.of(key, lambda: 2) for key in "de"]
    assert [2, 1, 2] == [recent.of(key, lambda: 2) for key in "aed"]
