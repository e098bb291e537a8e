"""Programs and devices that tests need: tests skip without them, except in CI.

There a skip is a failure (`conftest.py`), unless what is missing was named beforehand.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["may_skip", "require_tool"]

_WHERE = {
    "cc": "a C compiler (Debian: gcc, libc6-dev)",
    "fwatchdog": "the binary of github.com/openfaas/of-watchdog under this name",
    "faas-cli": "the binary of github.com/openfaas/faas-cli",
    "gateway": "the binary of github.com/openfaas/faas/gateway",
    "dockerd": "the Docker Engine (Debian: docker.io)",
    "docker-compose": "Compose (Debian: docker-compose)",
    "ip": "what makes networks (Debian: iproute2)",
    "iptables": "what leads addresses of Services to pods (Debian: iptables)",
    "containerd": "what runs containers on a node (Debian: containerd)",
    "runc": "what starts a container (Debian: runc)",
    "debootstrap": "what makes the files that images start from (Debian: debootstrap)",
    "openssl": "what makes certificates (Debian: openssl)",
    "chromium": "the browser (Debian: chromium)",
    "ab": "ApacheBench (Debian: apache2-utils)",
    "wrk": "the load generator wrk (Debian: wrk)",
    "hey": "the load generator hey (Debian: hey)",
    "locust": "Locust (pip install locust, in an environment of its own)",
    "prometheus": "Prometheus (Debian: prometheus)",
    "helm": "the program of helm.sh/helm (go install helm.sh/helm/v3/cmd/helm@v3.19.0)",
    "kubectl": "Kubernetes's command (Debian: kubernetes-client)",
    "promtool": "Prometheus's checker (Debian: prometheus)",
}


def require_tool(name: str) -> str:
    """Return the path of the program ``name``, or skip the test with the reason."""
    path = shutil.which(name)
    if path:
        return path
    pytest.skip(f"{name} is not on the PATH; it is {_WHERE.get(name, 'a program to install')}")


def may_skip(reason: str, env: Mapping[str, str] = os.environ) -> bool:
    """Return whether a test may be skipped for ``reason``: outside CI for any, in CI for a few.

    In CI (CI=true) the reason has to name a GPU, or a word of ``CARPOOL_TEST_WITHOUT`` (separated
    by blanks), which lists what the machine is known to lack.
    """
    known = ("GPU", *env.get("CARPOOL_TEST_WITHOUT", "").split())
    return env.get("CI") != "true" or any(word in reason for word in known)
