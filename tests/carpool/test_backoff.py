"""How long to wait before a process is started again."""

from __future__ import annotations

from carpool.backoff import Backoff


def test_backoff_doubles_up_to_its_limit_and_resets() -> None:
    """Waits double from 100 ms to 10 s and are reset after 30 s of life."""
    backoff = Backoff()
    assert [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0] == [backoff.after(1) for _ in range(9)]
    assert (0.1, 0.2) == (backoff.after(30), backoff.after(0))
