"""``carpool scaler run --kubernetes`` as a local process that manages a cluster."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import requests

from tests.ports import free_port
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TOKEN", "ScalerProcess"]

TOKEN = "t0ken"
_OK = 200


class ScalerProcess:
    """A scaler that takes part in a leader election.

    Args:
        folder: new folder for its files.
        kubeconfig: kubeconfig by which it reaches the cluster.
        lease: Lease that it competes for, as ``NAMESPACE/NAME``.
        options: further options of the command.
    """

    def __init__(self, folder: Path, kubeconfig: Path, lease: str, *options: str) -> None:
        folder.mkdir()
        where = f"127.0.0.1:{free_port()}"
        self.url = f"http://{where}"
        (folder / "token").write_text(TOKEN)
        command = [
            *(sys.executable, "-m", "carpool", "scaler", "run", "--kubernetes", "--lease", lease),
            *("--listen", where, "--advertise", where, "--token-file", str(folder / "token")),
            *("--store", str(folder / "scaler.db"), *options),
        ]
        self._log = folder / "log"
        env = {"KUBECONFIG": str(kubeconfig), "PATH": "/usr/bin", "HOME": str(folder)}
        with self._log.open("w") as log:
            self.running = subprocess.Popen(command, cwd=folder, stderr=log, env=env)

    def log(self) -> str:
        """Return the output of the process."""
        return self._log.read_text()

    def ask(self, path: str) -> requests.Response | None:
        """Return its response, which may be the leader's; None if it cannot be reached."""
        headers = {"authorization": f"Bearer {TOKEN}"}
        with suppress(requests.RequestException):
            return requests.get(self.url + path, headers=headers, timeout=30)
        return None

    def status(self) -> int:
        """Return the status of a request that only a leader answers; 0 if it cannot be reached."""
        answer = self.ask("/v1/functions")
        return 0 if answer is None else answer.status_code

    def explain(self, function: str) -> dict[str, Any]:
        """Return the explanation of a function; empty if there is none or no scaler responds."""
        answer = self.ask(f"/v1/functions/{function}")
        found: dict[str, Any] = answer.json() if answer is not None and answer.ok else {}
        return found

    @property
    def terms(self) -> int:
        """Number of times that it has become the leader."""
        return len(re.findall("leading: holds the Lease", self.log()))

    def wait(self) -> None:
        """Wait until it responds, as the leader or on its behalf."""

        def answers() -> bool:
            assert self.running.poll() is None, self.log()
            return self.status() == _OK

        wait_until(answers, what="a scaler that answers")

    def end(self) -> None:
        """Terminate it gracefully."""
        self.running.terminate()
        self.running.wait(HANG_S)
