"""A whole stack for tests: ``carpool up`` with a scaled function, and open-loop load on it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from carpool.errors import CarpoolError
from carpool.http.client import Pool
from tests.faas_stack.test_up import carpool, descendants

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faas_stack.test_up import Up

__all__ = ["BACKGROUND", "Outcome", "Stack", "kept_up", "load", "stack", "write_function"]

# The functions only sleep, and plans are for more cores than a small machine has.
_ARGUMENTS = ("up", "--json", "--no-watchdog", "--partition", "off")

HANDLER = """\
import time

def handle_batch(items):
    time.sleep(0.02 + 0.002 * len(items))
    return [{"echo": item.bytes().decode(), "batch": len(items)} for item in items]
"""
# Requests of this class have no deadline, so that all of them must be answered with 200.
BACKGROUND = ("x-carpool-class", "batch")


def write_function(folder: Path, **labels: str) -> None:
    """A stack file with the function ``echo``, which takes 20 ms and 2 ms an item."""
    (folder / "echo").mkdir()
    (folder / "echo" / "handler.py").write_text(HANDLER)
    settings = {
        "com.carpool.slo": "500ms",
        "com.carpool.batch.max": "8",
        "com.carpool.scale.policy": "infless",
        **{f"com.carpool.{name}": text for name, text in labels.items()},
    }
    document = {
        "provider": {"name": "openfaas"},
        "functions": {
            "echo": {
                "lang": "python3-batch",
                "handler": "./echo",
                "image": "echo:latest",
                "labels": settings,
            }
        },
    }
    (folder / "stack.yaml").write_text(json.dumps(document))


@dataclass(slots=True)
class Away:
    """From when until when a provider was gone; for ever, while it is not back."""

    gone_s: float
    back_s: float = math.inf


class Stack:
    """A running stack.

    Attributes:
        away: Each time that the provider was killed.
    """

    def __init__(self, up: Up, folder: Path) -> None:
        self.up = up
        result = up.result()
        self.url, self.scaler = result["url"], result["scaler"]
        self.away = list[Away]()
        self.token = (folder / ".secrets" / "carpool-scaler-token").read_text().strip()

    def explain(self, name: str = "echo") -> dict[str, Any]:
        """What the scaler says of a function; empty while there is none to ask."""
        headers = {"authorization": f"Bearer {self.token}"}
        try:
            answer = requests.get(f"{self.scaler}/v1/functions/{name}", headers=headers, timeout=5)
        except requests.RequestException:
            return {}
        found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
        return found

    def ready(self) -> int:
        """Ready instances."""
        return int(self.explain().get("ready", -1))

    def functions(self) -> dict[str, dict[str, Any]]:
        """What the provider lists."""
        listed = requests.get(f"{self.url}/system/functions", timeout=5).json()
        return {function["name"]: function for function in listed}

    def replicas(self) -> dict[str, int]:
        """Replicas of the classes of ``echo``."""
        return {
            name: function["replicas"]
            for name, function in self.functions().items()
            if name.startswith("echo--")
        }

    def processes(self, word: str, without: str = "\0") -> list[int]:
        """Processes below the stack whose command line has a word."""
        found = []
        for pid in descendants(self.up.process.pid):
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                if word in line and without not in line:
                    found.append(pid)
        return found

    def kill_provider(self) -> None:
        """SIGKILL to the provider."""
        self.away.append(Away(time.monotonic()))
        self.up.process.kill()

    def kill(self, word: str) -> bool:
        """SIGKILL to the first such process; whether there was one."""
        return any(self.kill_one(pid) for pid in self.processes(word)[:1])

    def kill_one(self, pid: int) -> bool:
        """SIGKILL; whether it was there."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


@contextlib.contextmanager
def stack(folder: Path, scaler: str = "") -> Iterator[Stack]:
    """A stack that has started; it must end in good order."""
    ports = ("--port", "0", "--scaler-port", "0")
    with carpool(folder, *_ARGUMENTS, *ports, "--scaler", f"--hold 2s {scaler}") as up:
        yield Stack(up, folder)
        _ends_well(up)


@contextlib.contextmanager
def kept_up(folder: Path) -> Iterator[Stack]:
    """A stack that is started again at its address whenever it dies, as a supervisor would."""
    with contextlib.ExitStack() as starts:

        def started(*ports: str) -> Up:
            options = (*_ARGUMENTS, *ports, "--scaler", "--hold 2s")
            return starts.enter_context(carpool(folder, *options))

        running = Stack(started("--port", "0", "--scaler-port", "0"), folder)
        ports = [each.rpartition(":")[2] for each in (running.url, running.scaler)]
        over = threading.Event()

        def supervise() -> None:
            while not over.wait(0.2):
                if running.up.process.poll() is None:
                    continue
                running.up = started("--port", ports[0], "--scaler-port", ports[1])
                assert running.up.process.stdout is not None
                if running.up.process.stdout.readline():  # else its ports were still taken
                    running.away[-1].back_s = time.monotonic()

        supervisor = threading.Thread(target=supervise)
        supervisor.start()
        try:
            yield running
        finally:
            over.set()
            supervisor.join()
            _ends_well(running.up)


def _ends_well(up: Up) -> None:
    up.process.send_signal(signal.SIGTERM)
    code, said = up.ended()
    assert 0 == code, said
    assert "Traceback" not in said, said


async def load(url: str, rate_rps: float, duration_s: float, *headers: tuple[str, str]) -> Outcome:
    """So many requests a second, whatever becomes of them; each must be answered with its own."""
    loop, outcome = asyncio.get_running_loop(), Outcome()
    pool = Pool(url.removeprefix("http://"), max_connections=512)
    began, calls = loop.time(), []
    for number in range(round(rate_rps * duration_s)):
        await asyncio.sleep(max(0.0, began + number / rate_rps - loop.time()))
        calls.append(loop.create_task(_call(pool, number, headers, outcome)))
    await asyncio.gather(*calls)
    pool.close()
    return outcome


class Outcome:
    """What became of requests."""

    def __init__(self) -> None:
        self.statuses: Counter[int] = Counter()
        self.broken: list[str] = []
        self.broken_s: list[float] = []
        self.wrong: list[str] = []
        self.batches: Counter[int] = Counter()

    @property
    def answered(self) -> int:
        """Answers of any kind."""
        return self.statuses.total()


async def _call(
    pool: Pool, number: int, headers: tuple[tuple[str, str], ...], outcome: Outcome
) -> None:
    body = str(number)
    try:
        answer = await pool.request("POST", "/function/echo", headers, body.encode(), 90.0)
    except CarpoolError as error:
        outcome.broken.append(str(error))
        outcome.broken_s.append(time.monotonic())
        return
    outcome.statuses[answer.status] += 1
    if answer.status == 200:
        found = json.loads(answer.body)
        outcome.batches[found["batch"]] += 1
        if found["echo"] != body:
            outcome.wrong.append(body)
