"""The sidecar's log, as text or as JSON lines with request fields."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.docs.snippets import take_one
from tests.sidecar.runtime.conftest import ROOT
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sidecar.runtime.conftest import Start

SHOWN = json.loads(take_one("docs/sidecar.md", '^{"time"'))


def lines(text: str) -> list[dict[str, Any]]:
    """Return the log lines about requests."""
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [line for line in found if line["message"] == "request"]


@pytest.mark.parametrize("which", ["all", "failed", "off"])
def test_all_failed_or_no_requests_are_logged_as_configured(
    sidecar: Start, which: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Requests are logged with ID, outcome and batch: all, only failed ones, or none."""

    async def run() -> None:
        env = {"sidecar_log_format": "json", "sidecar_log_requests": which, "OPENFAAS_NAME": "fn"}
        async with sidecar(**env) as running:
            good = await running.ask("hello", ("x-call-id", "first"), target="/a?secret=1")
            bad = await running.ask("status:503", ("x-call-id", "second"))
            late = await running.ask("x", ("x-call-id", "third"), ("x-timeout", "1ns"))
            assert [200, 503, 504] == [answer.status for answer in (good, bad, late)]

    asyncio.run(run())
    found = {line["call_id"]: line for line in lines(capfd.readouterr().err)}
    expected = {"all": {"first", "second", "third"}, "failed": {"second", "third"}, "off": set()}
    assert expected[which] == found.keys()
    if which != "off":
        second, third = found["second"], found["third"]
        assert ("sidecar", "fn", "info") == (second["part"], second["function"], second["level"])
        assert ("POST", "/", "*", 503) == tuple(
            second[name] for name in ("method", "path", "app", "status")
        )
        assert ("failed", 1) == (second["outcome"], second["batch"])
        assert 0 < second["exec_s"] <= second["seconds"]
        assert list(SHOWN) == list(second)
        assert [type(value) for value in SHOWN.values()] == [type(v) for v in second.values()]
        assert (504, False) == (third["status"], "batch" in third)
    if which == "all":
        assert ("/a", "in_time") == (found["first"]["path"], found["first"]["outcome"])


def test_settings_errors_are_logged_as_json(tmp_path: Path) -> None:
    """Errors in the settings are logged as JSON too, so that log collectors can read them."""
    done = subprocess.run(
        [sys.executable, "-m", "sidecar"],
        env={"PYTHONPATH": str(ROOT), "sidecar_log_format": "json", "sidecar_listn": "x"},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert 0 != done.returncode
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert ("error", "sidecar") == (line["level"], line["part"])
    assert "sidecar_listn" in line["message"]


def test_text_format_logs_one_line_per_request(
    sidecar: Start, capfd: pytest.CaptureFixture[str]
) -> None:
    """In text format a request is one line."""

    async def run() -> None:
        async with sidecar(sidecar_log_requests="all") as running:
            assert 200 == (await running.ask("hello", ("x-call-id", "first"))).status

    asyncio.run(run())
    (line,) = [each for each in capfd.readouterr().err.splitlines() if "request " in each]
    assert line.startswith("sidecar: request call_id=first method=POST path=/ app=* ")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_log_values_are_quoted_and_truncated(
    sidecar: Start, log_format: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Spaces, quotes and other line breaks in values are quoted, and long values are truncated."""
    forged = 'x status=200 "a" \x85sidecar: request \x9b2J'

    async def run() -> None:
        env = {"sidecar_log_requests": "all", "sidecar_log_format": log_format}
        async with sidecar(**env) as running:
            for call_id, app in ((forged, "a b=c"), ("i" * 5000, "*")):
                pairs = [("x-call-id", call_id), ("x-carpool-app", app)]
                assert 200 == (await running.ask("hello", *pairs)).status

    asyncio.run(run())
    written = capfd.readouterr().err
    first, second = [line for line in written.splitlines() if "call_id" in line]
    if log_format == "json":
        assert (forged, "a b=c") == (json.loads(first)["call_id"], json.loads(first)["app"])
        assert "i" * 200 + "..." == json.loads(second)["call_id"]
    else:
        quoted = f'call_id={json.dumps(forged)} method=POST path=/ app="a b=c" outcome=in_time '
        assert first.startswith(f"sidecar: request {quoted}")
        assert f"call_id={'i' * 200}... method" in second
