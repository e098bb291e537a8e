"""Test of a function of a shipped template, from the stack file to the response."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from tests.faas_stack.test_up import carpool, descendants
from tests.waiting import HANG_S, wait_until

HANDLER = """\
import os
import time

def handle_batch(items):
    if items[0].bytes() == b"crash":
        os._exit(3)
    time.sleep(0.005)
    return [{"echo": item.bytes().decode(), "batch": len(items)} for item in items]
"""
STACK = """\
provider: {name: openfaas}
functions:
  echo:
    lang: python3-batch
    handler: ./echo
    image: echo:latest
    labels:
      com.carpool.slo: 60s
      com.carpool.batch.policy: deadline
      com.carpool.batch.max: "16"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stack with one batch function that returns its inputs and its batch's size."""
    (tmp_path / "echo").mkdir()
    (tmp_path / "echo" / "handler.py").write_text(HANDLER)
    (tmp_path / "stack.yaml").write_text(STACK)
    return tmp_path


def handlers(provider: int) -> list[int]:
    """Return the handler processes of a provider."""
    return [
        pid
        for pid in descendants(provider)
        if b"watchdog_plugin" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


@pytest.mark.slow
def test_handler_killed_under_load(folder: Path) -> None:
    """Callers get their own batched responses, and a killed handler is restarted."""
    with carpool(folder, "up", "--port", "0", "--json", "--no-watchdog") as up:
        url = up.result()["functions"][0]["url"]
        answered: list[int] = []
        sizes: set[int] = set()

        def call(number: int) -> None:
            answer = requests.post(url, data=str(number), timeout=HANG_S)
            answered.append(answer.status_code)
            if answer.status_code == 200:
                assert str(number) == answer.json()["echo"]
                sizes.add(answer.json()["batch"])
            else:
                assert "error" in answer.json()

        def kill() -> None:
            wait_until(lambda: len(answered) > 300)
            (pid,) = handlers(up.process.pid)
            os.kill(pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(call, range(900)))
        killer.join()
        assert 900 == len(answered)
        assert {200} <= set(answered) <= {200, 502, 503}
        assert answered.count(200) > 800
        assert 200 == answered[-1]
        assert max(sizes) > 1
        up.process.send_signal(signal.SIGTERM)
        assert 0 == up.ended()[0]


def test_crash_of_handler_is_said(folder: Path) -> None:
    """The end of a handler that was ready is a line of the command itself, not only of its logs."""
    with carpool(folder, "up", "--port", "0", "--json", "--no-watchdog") as up:
        url = up.result()["functions"][0]["url"]
        assert 200 == requests.post(url, data="first", timeout=HANG_S).status_code
        assert 502 == requests.post(url, data="crash", timeout=HANG_S).status_code
        wait_until(lambda: "its handler" in "".join(up.said), what="the report")
        assert 200 == requests.post(url, data="last", timeout=HANG_S).status_code
        up.process.send_signal(signal.SIGTERM)
        code, said = up.ended()
    first, *_ = (line for line in said.splitlines() if "its handler" in line)
    assert "echo-1: its handler ended with status 3, and is started again (crash 1)" == first
    assert 0 == code
