"""When a process that does not answer its probes counts as hung."""

from __future__ import annotations

from carpool.liveness import LIMIT_S, Silence


def test_process_that_stopped_answering_is_reported() -> None:
    """The limit counts from when the first missed probe was sent, and again after each report."""
    silence = Silence()
    silence.answered()
    for asked in (1.0, 3.0, 5.0, 7.0):
        silence.missed(asked)
    assert not silence.broken
    assert not silence.too_long(LIMIT_S, 1.0 + LIMIT_S - 0.1)
    assert silence.too_long(LIMIT_S, 1.0 + LIMIT_S)
    assert not silence.too_long(LIMIT_S, 1.0 + LIMIT_S)


def test_process_that_never_answered_is_not_reported() -> None:
    """A process that has never answered is never reported."""
    silence = Silence()
    for asked in range(1000):
        silence.missed(float(asked))
    assert silence.broken
    assert not silence.too_long(LIMIT_S, 1e6)


def test_any_answer_ends_the_silence() -> None:
    """Any answer ends a silence."""
    silence = Silence()
    silence.answered()
    for asked in (1.0, 2.0, 3.0, 4.0):
        silence.missed(asked)
    silence.answered()
    assert silence.broken
    silence.missed(100.0)
    assert not silence.too_long(LIMIT_S, 101.0)


def test_single_missed_probe_is_not_reported() -> None:
    """A single missed probe is not reported, as it may follow a pause of the observer itself."""
    silence = Silence()
    silence.answered()
    silence.missed(1.0)
    assert not silence.too_long(LIMIT_S, 1000.0)
    silence.missed(1000.0)
    assert not silence.too_long(LIMIT_S, 1002.0)
    silence.answered()
    assert silence.broken
