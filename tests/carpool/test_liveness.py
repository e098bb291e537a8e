"""When a silence has lasted too long."""

from __future__ import annotations

from carpool.liveness import LIMIT_S, Silence


def test_a_process_that_answered_and_does_not_any_more() -> None:
    """Too long is the limit, counted from when the first missed probe was sent; and then again."""
    silence = Silence()
    silence.answered()
    for asked in (1.0, 3.0, 5.0, 7.0):
        silence.missed(asked)
    assert not silence.broken
    assert not silence.too_long(LIMIT_S, 1.0 + LIMIT_S - 0.1)
    assert silence.too_long(LIMIT_S, 1.0 + LIMIT_S)
    assert not silence.too_long(LIMIT_S, 1.0 + LIMIT_S)


def test_a_process_that_has_never_answered_may_be_loading() -> None:
    """For as long as that takes."""
    silence = Silence()
    for asked in range(1000):
        silence.missed(float(asked))
    assert silence.broken
    assert not silence.too_long(LIMIT_S, 1e6)


def test_an_answer_ends_it() -> None:
    """Whatever it says."""
    silence = Silence()
    silence.answered()
    for asked in (1.0, 2.0, 3.0, 4.0):
        silence.missed(asked)
    silence.answered()
    assert silence.broken
    silence.missed(100.0)
    assert not silence.too_long(LIMIT_S, 101.0)


def test_a_process_that_was_stopped_itself_blames_no_other() -> None:
    """After a pause its timers are over all at once: one missed probe says nothing."""
    silence = Silence()
    silence.answered()
    silence.missed(1.0)
    assert not silence.too_long(LIMIT_S, 1000.0)
    silence.missed(1000.0)
    assert not silence.too_long(LIMIT_S, 1002.0)
    silence.answered()
    assert silence.broken
