"""A whole stack for tests: ``carpool up`` with a scaled function, and its observed state."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from carpool import basic_auth
from tests.faas_stack.test_up import carpool, descendants
from tests.live.load import BACKGROUND, Outcome, load
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.faas_stack.test_up import Up

__all__ = ["ARGUMENTS", "BACKGROUND", "HANDLER", "Outcome", "Stack", "ends_well", "load", "stack"]
__all__ += ["write_function"]

# The functions only sleep, and plans are for more cores than a small machine has.
ARGUMENTS = ("up", "--json", "--no-watchdog", "--partition", "off")

HANDLER = """\
import time

def handle_batch(items):
    time.sleep(0.02 + 0.002 * len(items))
    return [{"echo": item.bytes().decode(), "batch": len(items)} for item in items]
"""


def write_function(
    folder: Path, environment: Mapping[str, str] | None = None, /, **labels: str
) -> None:
    """Write a stack file with the function ``echo``, which takes 20 ms, and 2 ms for each item."""
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
                "environment": dict(environment or {}),
            }
        },
    }
    (folder / "stack.yaml").write_text(json.dumps(document))


class Stack:
    """A running stack."""

    def __init__(self, up: Up, folder: Path) -> None:
        self.up = up
        self.folder = folder
        result = up.result()
        self.url, self.scaler = result["url"], result["scaler"]
        self.auth = basic_auth.credentials(Path(result["credentials"]))
        self.token = (folder / ".secrets" / "carpool-scaler-token").read_text().strip()

    @property
    def ports(self) -> list[int]:
        """Return the ports on which it listens."""
        return [int(url.rpartition(":")[2]) for url in (self.url, self.scaler)]

    def ask_scaler(self, path: str) -> requests.Response:
        """Send a request to the scaler with its token."""
        headers = {"authorization": f"Bearer {self.token}"}
        return requests.get(self.scaler + path, headers=headers, timeout=HANG_S)

    def system(self, method: str, path: str, document: object = None) -> requests.Response:
        """Send a request to the provider with its credentials."""
        return requests.request(
            method, self.url + path, json=document, auth=self.auth, timeout=HANG_S
        )

    def explain(self, name: str = "echo") -> dict[str, Any]:
        """Return the scaler's explanation of a function; empty while no scaler answers."""
        try:
            answer = self.ask_scaler(f"/v1/functions/{name}")
        except requests.RequestException:
            return {}
        found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
        return found

    def ready(self) -> int:
        """Return the number of ready instances."""
        return int(self.explain().get("ready", -1))

    def troubles(self, name: str = "echo") -> list[str] | None:
        """Return the problems of a function that the scaler reports; None while it does not answer.

        Slower batches are left out, as any machine with other work may cause them.
        """
        notes = self.explain(name).get("notes")
        return None if notes is None else [n for n in notes if not n.startswith("batches take ")]

    def only_class(self) -> str:
        """Wait until the function has one class of instances, and return its name."""
        wait_until(lambda: 1 == len(self.replicas()), what="one class of instances")
        (name,) = self.replicas()
        return name

    def counted(self, state: str = "done") -> int:
        """Return the number of requests of ``echo`` with this outcome that the scaler knows."""
        metrics = self.ask_scaler("/metrics").text
        name = f'scaler_requests_total{{function_name="echo",state="{state}"}} '
        found = [line.rpartition(" ")[2] for line in metrics.splitlines() if name in line]
        return sum(int(float(value)) for value in found)

    def functions(self) -> dict[str, dict[str, Any]]:
        """Return the functions that the provider lists."""
        listed = self.system("GET", "/system/functions").json()
        return {function["name"]: function for function in listed}

    def replicas(self) -> dict[str, int]:
        """Return the replicas of the classes of ``echo``."""
        return {
            name: function["replicas"]
            for name, function in self.functions().items()
            if name.startswith("echo--")
        }

    def processes(self, word: str, without: str = "\0") -> list[int]:
        """Return the processes below the stack whose command line contains a word."""
        found = []
        for pid in descendants(self.up.process.pid):
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                if word in line and without not in line:
                    found.append(pid)
        return found

    def fronts(self) -> dict[int, str]:
        """Return the fronts' process ids and addresses."""
        found = {}
        for pid in self.processes("-m sidecar"):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
                env = dict(word.partition("=")[::2] for word in words)
                if "sidecar_scaler" in env and "sidecar_class" not in env:
                    found[pid] = env["sidecar_listen"]
        return found

    def kill(self, word: str) -> bool:
        """Send SIGKILL to the first such process; return whether there was one."""
        return any(self.kill_one(pid) for pid in self.processes(word)[:1])

    def kill_one(self, pid: int) -> bool:
        """Send SIGKILL to a process; return whether it existed."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


@contextlib.contextmanager
def stack(folder: Path, scaler: str = "") -> Iterator[Stack]:
    """Yield a stack that has started; it must end without an error."""
    ports = ("--port", "0", "--scaler-port", "0")
    with carpool(folder, *ARGUMENTS, *ports, "--scaler", f"--hold 2s {scaler}") as up:
        yield Stack(up, folder)
        ends_well(up)


def ends_well(up: Up) -> None:
    """Check that the stack ends without an error on SIGTERM."""
    up.process.send_signal(signal.SIGTERM)
    code, said = up.ended()
    assert 0 == code, said
    assert "Traceback" not in said, said
