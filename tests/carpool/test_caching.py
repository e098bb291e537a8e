"""Results are cached for repeated keys, except large ones."""

from __future__ import annotations

from carpool.caching import SmallCache


def test_only_small_keys_are_kept() -> None:
    """The result for a large key is computed each time, and takes no memory."""
    asked: list[bytes] = []

    def size(key: bytes) -> int:
        asked.append(key)
        return len(key)

    cached = SmallCache(size)
    small, large = b"x" * 2048, b"x" * 2049
    assert [cached(key) for key in (small, large) * 2] == [2048, 2049] * 2
    assert asked == [small, large, large]
    assert len(cached) == 1
