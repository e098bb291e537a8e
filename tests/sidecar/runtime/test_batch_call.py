"""Handler responses that cannot be passed on to a caller."""

from __future__ import annotations

import json

import pytest

from carpool import errors
from carpool.errors import FunctionFault
from carpool.http.client import Response
from carpool.rate_limited_log import RateLimit
from sidecar.runtime import batch_call


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (errors.body('handle_batch raised KeyError: "k"'), 'handle_batch raised KeyError: "k"'),
        (b' {"error": {"code": 7}}', "{'code': 7}"),
        (b"plain text\n", "plain text"),
        (b'{"detail": "other"}', '{"detail": "other"}'),
        (b'{"error": "cut', '{"error": "cut'),
        (b'{"error": ' + b"[" * 100_000, '{"error": ' + "[" * 490),
        (b"", "no text"),
    ],
)
def test_failed_batch_error_quotes_function_text(body: bytes, reason: str) -> None:
    """The function's error text is quoted plainly, not as JSON inside the caller's JSON."""
    with pytest.raises(FunctionFault) as caught:
        batch_call._answers(Response(500, [], body), [1])
    assert f"the function failed the batch with status 500: {reason}" == str(caught.value)


def test_repeated_faults_are_logged_with_count(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Faults are logged at intervals with a count, not only the first one."""
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
