"""The handler behind the real of-watchdog, if that is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from carpool import wire
from tests.ports import free_port, watchdog_port
from tests.tools import require_tool
from tests.waiting import HANG_S, wait_until
from tests.watchdog_plugin.processes import Client

ECHO = """
def handle_batch(items):
    print("z" * 200_000)
    return [item.bytes() for item in items]
"""


def probe(address: str) -> int:
    """Return the status of the watchdog's readiness, or 0 if it does not listen yet."""
    with suppress(OSError), Client(address) as client:
        return client.request("GET", "/_/ready").status
    return 0


def test_real_watchdog_serves_batches_also_during_drain(tmp_path: Path) -> None:
    """Batches with long log lines are served, also after SIGTERM, and the exit code is 0."""
    watchdog = require_tool("fwatchdog")
    (tmp_path / "function").mkdir()
    (tmp_path / "function" / "handler.py").write_text(ECHO)
    port, upstream = free_port(), f"127.0.0.1:{free_port()}"
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "TMPDIR": str(tmp_path),
        "port": str(port),
        "mode": "http",
        "fprocess": f"{sys.executable} -m watchdog_plugin",
        "upstream_url": f"http://{upstream}",
        "handler_listen": upstream,
        "ready_path": "/_/ready",
        "healthcheck_interval": "1s",
        "write_timeout": "5s",
    }
    with (
        watchdog_port(),
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            [watchdog], cwd=tmp_path, env=environment, stdout=log, stderr=log
        ) as process,
    ):
        address = f"127.0.0.1:{port}"
        try:
            wait_until(lambda: probe(address) == 200, what="the watchdog's readiness")
            with Client(address) as client:
                for _ in range(3):
                    assert [b"a", b"b"] == [answer.body for answer in client.batch([b"a", b"b"])]
                process.terminate()
                assert b"c" == client.batch([b"c"])[0].body
            assert 0 == process.wait(HANG_S)
        finally:
            process.kill()
    assert wire.CONTENT_TYPE not in (tmp_path / "log").read_text(errors="replace")
