"""Log lines short enough for a log pump."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from watchdog_plugin import logs

if TYPE_CHECKING:
    import pytest


def written(*pieces: bytes, limit: int = 8) -> bytes:
    """Return the bytes written to the target after writing ``pieces``."""
    target = io.BytesIO()
    splitter = logs.LineSplitter(target, limit)
    for piece in pieces:
        assert len(piece) == splitter.write(piece)
    return target.getvalue()


def test_lines_within_the_limit_pass_unchanged() -> None:
    """Empty lines and an unfinished last line pass too."""
    assert b"12345678\n\nabc" == written(b"12345678\n\nabc")


def test_a_longer_line_is_split() -> None:
    """A line written in pieces is split too, and the count restarts with each line."""
    assert b"12345678\n90" == written(b"1234567890")
    assert b"12345678\n90\n12345678" == written(b"12345", b"67890\n12", b"345678")
    assert b"12345678\n12345678\n1" == written(b"12345678123456781")


def test_characters_are_not_cut_in_two() -> None:
    """Lines are split between UTF-8 characters."""
    assert "1234567\nü".encode() == written("1234567ü".encode())


def test_broken_pipe_raises_no_error() -> None:
    """Writing to a broken pipe raises no error."""

    class Broken(io.BytesIO):
        def write(self, _: object, /) -> int:
            raise BrokenPipeError

    assert 2 == logs.LineSplitter(Broken()).write(b"hi")


def test_protected_streams_flush_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Printed text is split and flushed at once."""
    target = io.BytesIO()
    text = io.TextIOWrapper(target)
    monkeypatch.setattr(sys, "stdout", text)
    monkeypatch.setattr(sys, "stderr", text)
    target.name = "log"
    logs.protect_streams()
    print("x" * 40_000)  # noqa: T201  printing is what authors do
    lines = target.getvalue().split(b"\n")
    assert [32768, 7232, 0] == list(map(len, lines))


def test_long_message_keeps_its_start_and_end() -> None:
    """Start and end of the message are kept, as the end of a traceback matters most."""
    text = "start" + "ü" * 10_000 + "end"
    cut = logs.bounded(text)
    assert len(cut.encode()) <= 4096
    assert cut.startswith("start")
    assert cut.endswith("end")
    assert "20008 bytes in all, cut" in cut
    assert "short" == logs.bounded("short")


def test_failures_are_logged_ten_times_a_second(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of a model that fails on every request is limited."""
    monkeypatch.setattr(logs, "_failures", logs._Budget(10))
    for _ in range(50):
        logs.say_failure("the model", ValueError("no"))
    told = capsys.readouterr().err.count("the model raised ValueError: no")
    assert 10 <= told <= 20  # the loop may straddle two seconds
