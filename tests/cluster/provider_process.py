"""``carpool provider kubernetes`` as a local process that manages a cluster."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.cluster import Cluster

__all__ = ["ProviderProcess", "provider_process"]


@dataclass(frozen=True, slots=True)
class ProviderProcess:
    """A running provider.

    Attributes:
        url: URL of its API.
    """

    url: str
    pid: int

    def memory_mib(self) -> float:
        """Return the peak memory of the process."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (peak,) = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
        return int(peak) / 1024

    def cpu_s(self) -> float:
        """Return the CPU time used by the process."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def provider_process(cluster: Cluster, namespace: str, *options: str) -> Iterator[ProviderProcess]:
    """Run a provider for the functions of a namespace, which stay when it ends."""
    where = ("--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace, "--port", "0")
    own = ("provider", "kubernetes", *where, "--no-auth", *options)
    command = (sys.executable, "-m", "carpool", *own)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, bufsize=1)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line.startswith("provider at http://"), line + process.stderr.read()
        yield ProviderProcess(line.split()[2].rstrip(";"), process.pid)
    finally:
        process.terminate()
        process.communicate(timeout=HANG_S)
