"""A real Prometheus on this machine, which reads what the shipped configuration names."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests
import yaml

from tests.tools import require_tool
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.live.stack import Stack

__all__ = ["SHIPPED", "RealPrometheus", "prometheus"]

SHIPPED = Path(__file__).resolve().parents[2] / "faas_stack" / "prometheus.yml"
_NOTHING = "scrape_configs: []\n"
_LISTENING = re.compile(r'msg="Listening on" address=(\S+)')
_STARTED = "Server is ready to receive web requests"


class RealPrometheus:
    """A running Prometheus."""

    def __init__(self, process: subprocess.Popen[str], config: Path) -> None:
        self.process = process
        self.said: list[str] = []
        self._config = config
        assert process.stderr is not None
        self._reader = threading.Thread(target=self.said.extend, args=(process.stderr,))
        self._reader.start()

    @property
    def url(self) -> str:
        """Its address, or an empty string before it answers."""
        said = "".join(self.said)
        found = _LISTENING.search(said)
        return f"http://{found[1]}" if found and _STARTED in said else ""

    def reads(self, provider: str, running: Stack) -> None:
        """Configure it to read a stack as the shipped configuration does, with credentials."""
        scaler = running.scaler.removeprefix("http://")
        text = SHIPPED.read_text().replace("scaler:8090", scaler).replace("provider:8080", provider)
        config = yaml.safe_load(text)
        jobs = {job["job_name"]: job for job in config["scrape_configs"]}
        user, password = running.auth
        for asked in (jobs["provider"], jobs["sidecar"], *jobs["sidecar"]["http_sd_configs"]):
            asked["basic_auth"] = {"username": user, "password": password}
        jobs["scaler"]["authorization"] = {"credentials": running.token}
        config["rule_files"] = [str(SHIPPED.with_name("alerts.yml"))]
        self._config.write_text(json.dumps(config))
        loads = self._loads()
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self._loads() > loads, what="the configuration to be read")

    def _loads(self) -> int:
        return "".join(self.said).count("Completed loading of configuration file")

    def targets(self) -> dict[str, list[str]]:
        """Return the health of its targets, by job."""
        found: dict[str, list[str]] = {}
        answer = requests.get(f"{self.url}/api/v1/targets", timeout=HANG_S).json()
        for target in answer["data"]["activeTargets"]:
            found.setdefault(target["labels"]["job"], []).append(target["health"])
        return found

    def ask(self, query: str) -> dict[str, float]:
        """Return the values of an instant query, by their labels."""
        answer: dict[str, Any] = requests.get(
            f"{self.url}/api/v1/query", params={"query": query}, timeout=HANG_S
        ).json()
        return {
            ",".join(sorted(series["metric"].values())): float(series["value"][1])
            for series in answer["data"]["result"]
        }

    def ended(self) -> None:
        """Kill it, and wait until it has ended."""
        self.process.kill()
        self.process.wait(HANG_S)
        self._reader.join(HANG_S)


@contextlib.contextmanager
def prometheus(folder: Path) -> Iterator[RealPrometheus]:
    """Yield a Prometheus without targets."""
    config = folder / "prometheus.yml"
    config.write_text(_NOTHING)
    process = subprocess.Popen(
        [
            require_tool("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'metrics'}",
            "--web.listen-address=127.0.0.1:0",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = RealPrometheus(process, config)
    try:
        wait_until(lambda: running.url or process.poll() is not None, what="Prometheus")
        assert running.url, "".join(running.said)
        yield running
    finally:
        running.ended()
        assert process.stderr is not None
        process.stderr.close()
