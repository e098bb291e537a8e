"""Answers of a handler that cannot go back to a caller."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from carpool.rate_limited_log import RateLimit
from sidecar.runtime import batch_call

if TYPE_CHECKING:
    import pytest


def test_another_fault_is_told_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A function's log has its faults, not only the first one since it was started."""
    now = 100.0
    monkeypatch.setattr(batch_call, "_log_limit", RateLimit())
    monkeypatch.setattr("sidecar.runtime.batch_call.time.monotonic", lambda: now)
    for status, head, at in ((700, b"", 0), (700, b"", 1), (200, b"x: y\r\n\r\n\0bad", 61)):
        now = 100.0 + at
        answered, _, body = batch_call._checked(status, head, memoryview(b""))
        assert 502 == answered
        assert "cannot be passed on" in json.loads(bytes(body))["error"]
    first, second = (record.getMessage() for record in caplog.records)
    assert "(1 since" in first
    assert "700" in first
    assert "(2 since" in second
    assert "700" not in second
