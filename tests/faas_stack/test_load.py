"""Tests of ``carpool load`` with a real server on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from carpool.errors import ConfigError
from carpool.http.server import serve
from faas_stack.compare.initial_load import initial_load
from faas_stack.load import command, flags, generator
from faas_stack.load.generator import LoadGenerator, Target
from faas_stack.load.results import LoadResults
from tests.faas_stack.load_target import delayed, running
from tests.waiting import HANG_S, wait_until, wait_until_async

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.http.server import Exchange

KEYS = ["requests", "ok", "errors", "slo_miss_ratio", "rps", "latency_ms", "mean_batch"]


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, object]:
    """Return the report of a run with at least one successful response."""
    assert command.main([*argv, "--json"]) == 0
    report: dict[str, object] = json.loads(capsys.readouterr().out)
    return report


def figure(report: dict[str, object], name: str) -> float:
    """Return one of the latency figures in milliseconds."""
    latency = report["latency_ms"]
    assert isinstance(latency, dict)
    return float(latency[name])


def test_a_run_sends_the_scheduled_requests_and_reports_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A uniform load of 200/s for half a second is 100 requests, all answered."""
    began_s = time.monotonic()
    with running(delayed(0.01)) as url:
        report = run_json(
            capsys,
            *("--url", f"{url}/function/f", "--rate", "200", "--duration", "500ms"),
            *("--arrivals", "uniform", "--slo", "5s"),
        )
    assert list(report) == KEYS
    assert (report["requests"], report["ok"], report["errors"]) == (100, 100, {})
    assert report["slo_miss_ratio"] == 0
    quantiles = [figure(report, name) for name in ("p50", "p90", "p95", "p99")]
    assert sorted(quantiles) == quantiles
    assert 10 <= quantiles[0] <= quantiles[-1] <= 1000 * (time.monotonic() - began_s)


def test_latency_counts_from_the_due_time_not_from_sending(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With one connection and 50 ms per response, the latency includes the time in the queue."""
    with running(delayed(0.05)) as url:
        report = run_json(
            capsys,
            *("--url", url, "--rate", "100", "--duration", "200ms", "--arrivals", "uniform"),
            *("--connections", "1"),
        )
    # 20 requests due within 0.2 s leave one every 50 ms; the last waits about 0.8 s.
    assert report["requests"] == 20
    assert figure(report, "p99") > 700
    assert figure(report, "p50") > 300


def test_slow_response_does_not_delay_later_requests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Requests are sent whatever the responses do; here the first response waits for the last."""
    arrived: list[Exchange] = []

    def app(exchange: Exchange) -> None:
        arrived.append(exchange)
        for waiting in arrived if len(arrived) == 30 else ():
            waiting.reply(200)

    with running(app) as url:
        report = run_json(
            capsys,
            *("--url", url, "--rate", "100", "--duration", "300ms", "--arrivals", "uniform"),
        )
    assert report["ok"] == 30


def test_request_due_during_connect_gets_its_own_connection() -> None:
    """A request that is due while a connection attempt completes gets a connection of its own."""
    arrived: list[Exchange] = []

    def app(exchange: Exchange) -> None:
        arrived.append(exchange)
        for waiting in arrived if len(arrived) == 3 else ():
            waiting.reply(200)

    class Crowded(LoadGenerator):
        crowded = False

        def _take(self, connection: Any) -> None:
            super()._take(connection)
            if len(self._busy) == 2 and not self.crowded:
                self.crowded = True
                self._wait_in_line(time.perf_counter())

    with running(app) as url:
        host, _, port = url.removeprefix("http://").rpartition(":")
        request = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"
        target = Target(host, int(port), [request], connections=8, timeout_s=HANG_S)
        results = LoadResults()
        asyncio.run(Crowded(target, iter([0.0, 0.0]), results).run())
    assert 3 == results.ok


def test_request_without_a_connection_in_time_is_not_sent() -> None:
    """A request that has waited for a connection for longer than the given time is dropped."""
    arrived: list[Exchange] = []

    def app(exchange: Exchange) -> None:
        arrived.append(exchange)
        if len(arrived) == 1:
            exchange.reply(200)

    class Impatient(LoadGenerator):
        def _take(self, connection: Any) -> None:
            if arrived:
                self._line.extend([0.0, 1.0])
            super()._take(connection)

    with running(app) as url:
        host, _, port = url.removeprefix("http://").rpartition(":")
        request = b"GET / HTTP/1.1\r\nhost: h\r\n\r\n"
        target = Target(host, int(port), [request], 1, timeout_s=HANG_S, patience_s=0.001)
        generator = Impatient(target, iter([0.0]), LoadResults())
        asyncio.run(generator.run())
    assert (1, 1) == (len(arrived), generator._results.ok)
    assert not generator._line


def test_requests_fail_at_once_after_server_has_gone() -> None:
    """After the server has gone, each request fails at once, without waiting for its time limit."""

    async def play() -> LoadResults:
        async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            server.close()
            writer.transport.abort()

        server = await asyncio.start_server(end, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
        target = Target(host, port, [request], connections=2, timeout_s=HANG_S)
        tally = LoadResults()
        await LoadGenerator(target, iter([0.001 * number for number in range(50)]), tally).run()
        return tally

    assert {"connection": 50} == asyncio.run(play()).errors


def test_bodies_headers_and_method_are_sent_as_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder's files are sent in turn, with the given method and headers."""
    for name in ("a.bin", "b.json"):
        (tmp_path / name).write_bytes(name.encode())
    seen: list[tuple[object, ...]] = []

    def app(exchange: Exchange) -> None:
        names = (b"content-type", b"x-team", b"x-carpool-explain")
        values = tuple(exchange.header(name) for name in names)
        seen.append((exchange.method, exchange.target, exchange.body, *values))
        exchange.reply(200)

    with running(app) as url:
        run_json(
            capsys,
            *("--url", f"{url}/function/f?q=1", "--rate", "40", "--duration", "100ms"),
            *("--arrivals", "uniform", "--data", f"@{tmp_path}", "--method", "put"),
            *("--header", "X-Team: red"),
        )
    target = ("PUT", "/function/f?q=1")
    assert seen == 2 * [
        (*target, b"a.bin", b"application/octet-stream", b"red", b"1"),
        (*target, b"b.json", b"application/json", b"red", b"1"),
    ]


def test_mean_batch_comes_from_response_header(capsys: pytest.CaptureFixture[str]) -> None:
    """The mean batch size is computed from the sidecar's response header."""

    def app(exchange: Exchange) -> None:
        exchange.reply(200, headers=[("X-Carpool-Batch", "4")])

    with running(app) as url:
        report = run_json(capsys, "--url", url, "--rate", "200", "--duration", "100ms")
    assert report["mean_batch"] == 4


def test_warm_up_is_sent_but_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Only requests that are due after the warm-up are counted."""
    count = 0

    def app(exchange: Exchange) -> None:
        nonlocal count
        count += 1
        exchange.reply(200)

    with running(app) as url:
        report = run_json(
            capsys,
            *("--url", url, "--rate", "100", "--duration", "200ms", "--warmup", "300ms"),
            *("--arrivals", "uniform"),
        )
    assert (50, 20) == (count, report["requests"])


def test_errors_are_counted_by_status_and_kind(capsys: pytest.CaptureFixture[str]) -> None:
    """Refusals, timeouts and broken connections are counted separately and have no latency."""
    turn = 0

    def app(exchange: Exchange) -> None:
        nonlocal turn
        turn += 1
        if turn % 4 == 0:
            exchange.reply(503)
        elif turn % 4 == 1:
            exchange.abort()
        elif turn % 4 == 2:
            exchange.reply(200)

    with running(app) as url:
        report = run_json(
            capsys,
            *("--url", url, "--rate", "100", "--duration", "400ms", "--arrivals", "uniform"),
            *("--timeout", "5s", "--slo", "5s"),
        )
    assert (report["requests"], report["ok"]) == (40, 10)
    assert report["errors"] == {"503": 10, "connection": 10, "timeout": 10}
    assert report["slo_miss_ratio"] == 0.75


def test_an_error_is_shown_with_an_example_of_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Each status is shown with one example, on one line that a terminal can show."""
    turn = 0

    def app(exchange: Exchange) -> None:
        nonlocal turn
        turn += 1
        status, text = (400, b"no \x1b[2J\n rows\xff") if turn % 2 else (503, b"x" * 5000)
        exchange.reply(status, text if turn < 3 else b"another")

    with running(app) as url:
        flags = ["--rate", "100", "--duration", "100ms", "--arrivals", "uniform"]
        assert 1 == command.main(["--url", url, *flags, "--connections", "1"])
    at, *lines = capsys.readouterr().out.splitlines()[-4:]
    assert at.endswith(" x 400")
    assert "            such as no ?[2J rows\ufffd" == lines[0]
    assert lines[1].endswith(" x 503")
    assert f"            such as {'x' * 157}..." == lines[2]


def test_an_example_is_made_once_for_each_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one example is made per status, so that many errors do not delay requests."""
    made: list[bytes] = []

    def one_line(body: bytes) -> str:
        made.append(body)
        return str(body)

    monkeypatch.setattr(generator, "_one_line", one_line)
    with running(lambda exchange: exchange.reply(503, b"busy")) as url:
        flags = ["--rate", "100", "--duration", "200ms", "--arrivals", "uniform"]
        assert 1 == command.main(["--url", url, *flags])
    assert [b"busy"] == made


def test_server_that_closes_after_each_response_gets_new_connections(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A server that closes after each response gets new connections."""

    def app(exchange: Exchange) -> None:
        exchange.keep_alive = False
        exchange.reply(200)

    with running(app) as url:
        report = run_json(
            capsys, "--url", url, "--rate", "200", "--duration", "200ms", "--connections", "3"
        )
    assert report["ok"] == report["requests"]


def test_a_trace_is_replayed_at_its_rates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace is replayed for its length, with its rates per minute scaled."""
    trace = tmp_path / "trace.csv"
    trace.write_text("start_s,requests_per_minute\n0,60\n0.2,120\n")
    with running(delayed(0)) as url:
        report = run_json(
            capsys,
            *("--url", url, "--trace", str(trace), "--scale", "100", "--arrivals", "uniform"),
        )
    assert report["requests"] == 20 + 40


def test_unreachable_target_error_has_address() -> None:
    """The error for an unreachable target has its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        with pytest.raises(command.Unreachable, match=rf"cannot connect to 127\.0\.0\.1:{port}"):
            command.main(["--url", f"http://127.0.0.1:{port}/", "--rate", "1", "--duration", "1s"])


def test_run_without_successful_response_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    """A run without any successful response exits with 1."""
    with running(delayed(0, status=404)) as url:
        code = command.main(["--url", url, "--rate", "50", "--duration", "100ms"])
    assert code == 1
    assert "x 404" in capsys.readouterr().out


def test_invalid_flags_are_reported_together() -> None:
    """All invalid flags are reported together."""
    with pytest.raises(ConfigError) as caught:
        flags.parse(
            [
                *("--url", "https://x/", "--rate", "fast", "--duration", "10", "--slo", "soon"),
                *("--method", "PSOT", "--header", "nocolon", "--data", "@/does/not/exist"),
                *("--connections", "0"),
            ]
        )
    names = [problem.name for problem in caught.value.problems]
    assert sorted(names) == sorted(
        [
            *("--url", "--rate", "--duration", "--slo", "--method", "--header", "--data"),
            "--connections",
        ]
    )
    assert "did you mean 'POST'?" in str(caught.value)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "--rate is missing: expected requests per second, or --trace"),
        (["--rate", "1", "--trace", "t.csv"], "--rate, --trace = 'both': expected only one"),
    ],
)
def test_rate_and_trace_exclude_each_other(argv: list[str], told: str) -> None:
    """Exactly one of rate and trace is required."""
    with pytest.raises(ConfigError, match=told):
        flags.parse(["--url", "http://127.0.0.1:1/", "--duration", "1s", *argv])


def test_a_rate_needs_a_duration() -> None:
    """A rate without a duration is refused."""
    with pytest.raises(ConfigError, match="--duration is missing"):
        flags.parse(["--url", "http://127.0.0.1:1/", "--rate", "5"])


def test_interrupt_reports_figures_so_far() -> None:
    """Ctrl-C ends the run at once with the figures so far, and stdout is still one JSON object."""
    arrived = 0

    def app(exchange: Exchange) -> None:
        nonlocal arrived
        arrived += 1
        if arrived <= 10:
            exchange.reply(200)

    with running(app) as url:
        code = "import sys; from faas_stack.load.command import main; sys.exit(main(sys.argv[1:]))"
        flags = ["--url", url, "--rate", "100", "--duration", "60s", "--json"]
        flags += ["--connections", "1"]  # the next request leaves when the answer has been read
        with subprocess.Popen(
            [sys.executable, "-c", code, *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            wait_until(lambda: arrived > 10)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert 10 == json.loads(out)["ok"]
    assert "interrupted" in err
    assert "\r" not in err


def test_progress_bar_is_shown_only_on_terminal() -> None:
    """The progress bar is shown on stderr, and only if that is a terminal."""
    ours, theirs = os.openpty()
    with running(delayed(0)) as url:
        code = "import sys; from faas_stack.load.command import main; sys.exit(main(sys.argv[1:]))"
        flags = ["--url", url, "--rate", "50", "--duration", "700ms"]
        done = subprocess.run(
            [sys.executable, "-c", code, *flags],
            stdout=subprocess.PIPE,
            stderr=theirs,
            check=True,
            text=True,
            timeout=HANG_S,
        )
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # how a pseudo-terminal says that the other side is closed
        while chunk := os.read(ours, 65536):
            shown += chunk
    os.close(ours)
    assert b"[#" in shown
    assert b"in flight" in shown
    assert "[#" not in done.stdout
    assert "throughput" in done.stdout


def test_initial_load_does_not_wait_for_responses() -> None:
    """An initial load goes on while no request is answered, and ends with the last response."""
    held: list[Exchange] = []
    released = False

    def app(exchange: Exchange) -> None:
        if released:
            exchange.reply(200, b"done")
        else:
            held.append(exchange)

    async def main() -> None:
        nonlocal released
        server = await serve(app, listen="127.0.0.1:0")
        host, _, port = server.address.rpartition(":")
        request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
        target = Target(host, int(port), [request], 512, HANG_S)
        async with initial_load([(100.0, target, results), (0.0, target, LoadResults())]):
            await wait_until_async(lambda: len(held) > 210)  # after two seconds, it once waited
            released = True
            for exchange in held:
                exchange.reply(200, b"done")
        await server.stop()

    results = LoadResults()
    asyncio.run(main())
    assert results.ok == len(results.lags_s)


def test_interrupted_initial_load_leaves_no_error_unread(caplog: pytest.LogCaptureFixture) -> None:
    """If Ctrl-C cancels all tasks during an initial load, asyncio logs no unread error."""

    async def main() -> None:
        server = await serve(lambda _: None, listen="127.0.0.1:0")
        host, _, port = server.address.rpartition(":")
        target = Target(host, int(port), [b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"], 512, HANG_S)
        with contextlib.suppress(asyncio.CancelledError):
            async with initial_load([(100.0, target, LoadResults())]):
                for task in asyncio.all_tasks():
                    task.cancel()
                await asyncio.sleep(HANG_S)
        await server.stop()

    asyncio.run(main())
    gc.collect()
    assert "never retrieved" not in caplog.text
