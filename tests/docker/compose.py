"""A stack of the compose file on its own ports."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
from pathlib import Path

import pytest
import requests

from tests.tools import require_tool
from tests.waiting import HANG_S, wait_until

__all__ = ["FILE", "PROFILES", "STACK", "Compose", "answers", "replicas"]

STACK = Path(__file__).resolve().parents[2] / "faas_stack"
FILE = STACK / "compose.yaml"
PROFILES = ("--profile", "dashboard", "--profile", "gateway")


class Compose:
    """A stack with its own name, on free ports."""

    def __init__(self, socket: str) -> None:
        self.files = [FILE]
        self.name = f"carpool-test-{secrets.token_hex(4)}"
        self.env = {
            "CARPOOL_STACK": self.name,
            "CARPOOL_PORT": "0",
            "PROMETHEUS_PORT": "0",
            "SCALER_PORT": "0",
            "GATEWAY_PORT": "0",
            "DOCKER_SOCKET": socket,
        }

    def __call__(self, *words: str) -> str:
        """Run a Compose command, which must succeed, and return its output."""
        files = [word for file in self.files for word in ("-f", str(file))]
        command = (require_tool("docker-compose"), "-p", self.name, *files, *words)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.env.items():
                patch.setenv(name, value)
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
        assert 0 == done.returncode, done.stdout + done.stderr
        return done.stdout

    def url(self, service: str, port: int) -> str:
        """Return the address at which a service's port is published."""
        return f"http://{self('port', service, str(port)).strip()}"

    def secret(self, name: str) -> str:
        """Return a secret that the provider has stored for users that may read it."""
        return self("exec", "-T", "provider", "cat", f"/var/lib/carpool-credentials/{name}").strip()

    def provider(self) -> tuple[str, requests.Session]:
        """Return the provider's address once it answers, and a session that has logged in."""
        url = self.url("provider", 8080)
        wait_until(lambda: answers(f"{url}/healthz"), what="the provider")
        assert 401 == requests.get(f"{url}/system/functions", timeout=HANG_S).status_code
        session = requests.Session()
        session.auth = ("admin", self.secret("basic-auth-password"))
        return url, session


def replicas(url: str, session: requests.Session) -> dict[str, int]:
    """Return the number of replicas of each function of a provider."""
    listed = session.get(f"{url}/system/functions", timeout=HANG_S).json()
    return {function["name"]: function["replicas"] for function in listed}


def answers(url: str) -> bool:
    """Return whether a request to the address is answered."""
    with contextlib.suppress(requests.RequestException):
        return requests.get(url, timeout=HANG_S).ok
    return False
