"""Programs of others that some tests need: skip without them at home, fail without them in CI."""

from __future__ import annotations

import os
import shutil

import pytest

__all__ = ["require_tool"]

_WHERE = {
    "fwatchdog": "the binary of github.com/openfaas/of-watchdog under this name",
    "faas-cli": "the binary of github.com/openfaas/faas-cli",
    "gateway": "the binary of github.com/openfaas/faas/gateway",
    "dockerd": "the Docker Engine (Debian: docker.io)",
    "docker-compose": "Compose (Debian: docker-compose)",
    "chromium": "the browser (Debian: chromium)",
    "prometheus": "Prometheus (Debian: prometheus)",
    "promtool": "Prometheus's checker (Debian: prometheus)",
}


def require_tool(name: str) -> str:
    """The path of the program ``name``, or the end of the test with the reason.

    Under CI=true a missing program is a failure, unless ``CARPOOL_TEST_WITHOUT`` (names separated
    by blanks) says that the machine is known to lack it.
    """
    path = shutil.which(name)
    if path:
        return path
    reason = f"{name} is not on the PATH; it is {_WHERE.get(name, 'a program to install')}"
    excused = name in os.environ.get("CARPOOL_TEST_WITHOUT", "").split()
    if os.environ.get("CI") == "true" and not excused:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
