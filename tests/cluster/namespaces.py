"""Namespaces for a node: its own network, and mounts that no other process sees.

Each suite on a machine has a unique number, held by a lock for as long as anything of the suite
runs; the network's addresses follow from it. A bridge is the network of the pods, and this machine
is connected to it too, so tests reach pods and the API server, and pods reach tests. Nothing else
can be reached from there.

A kubelet sets some kernel settings, which apply to the whole machine. Here it finds files with the
expected values in their place.
"""

from __future__ import annotations

import fcntl
import os
import random
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.cluster.workspace import PREFIX, Workspace, control_groups
from tests.waiting import wait_until

__all__ = ["SYSCTLS", "Namespaces"]

SYSCTLS = {
    "kernel/keys/root_maxbytes": 25000000,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
}
_MOST = 256  # networks at a time
_SETUP = """
set -e
mount --make-rshared /
mount -t tmpfs none /run
mount --bind "$TMPDIR/lib" /var/lib
mount --bind "$TMPDIR/log" /var/log
for file in $(cd "$TMPDIR/sysctl" && find . -type f); do
    mount --bind "$TMPDIR/sysctl/$file" "/proc/sys/$file"
done
ip link set lo up
ip link add cni0 type bridge
ip address add "$1/24" dev cni0
ip link set cni0 up
echo 1 >/proc/sys/net/ipv4/ip_forward
mkdir -p /run/netns
echo ready
exec sleep infinity
"""


class Namespaces:
    """A workspace whose processes run in their own namespaces. Needs root.

    Attributes:
        address: address of the node, on which its control plane listens too.
        host: address of this machine in that network.
        pods: first address for pods, and their network.
    """

    def __init__(self) -> None:
        lock, number = _number()
        try:
            self.workspace = Workspace(keep_open=[lock])
        finally:
            os.close(lock)  # the keeper has it until all is gone
        network = f"10.213.{number}"
        self.address, self.host = f"{network}.1", f"{network}.2"
        self.pods = (f"{network}.10", f"{network}.0/24")
        self._link = f"carpool{number}"
        try:
            self._open()
        except BaseException:
            self.workspace.close()
            raise

    def _open(self) -> None:
        work = self.workspace
        self._write_files()
        setup = ("sh", "-c", _SETUP, "-", self.address)
        holder = work.start("namespaces", "unshare", "--net", "--mount", *setup)
        log = work.folder / "namespaces.log"

        def ready() -> bool:
            work.check()
            return log.read_text() == "ready\n"

        wait_until(ready, what="the node's namespaces")
        pid = str(holder.pid)
        work.run("ip", "link", "add", self._link, "type", "veth", "peer", "machine", "netns", pid)
        work.run("ip", "address", "add", f"{self.host}/24", "dev", self._link)
        work.run("ip", "link", "set", self._link, "up")
        work.enter = ("nsenter", "--target", pid, "--net", "--mount")
        work.run("ip", "link", "set", "machine", "master", "cni0", "up")

    def _write_files(self) -> None:
        folder = self.workspace.folder
        for name in ("lib", "log"):
            (folder / name).mkdir()
        for name, value in SYSCTLS.items():
            path = folder / "sysctl" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
        for group in control_groups(self.workspace.name):
            group.mkdir()


def _number() -> tuple[int, int]:
    """Return a number that no other suite on this machine uses, and the descriptor of its lock."""
    folder = Path(tempfile.gettempdir(), f"{PREFIX}networks")
    folder.mkdir(exist_ok=True)
    for number in random.sample(range(_MOST), _MOST):
        lock = os.open(folder / str(number), os.O_CREAT | os.O_RDWR, 0o600)
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock, number
        os.close(lock)
    message = f"all {_MOST} networks are in use: {folder}"
    raise AssertionError(message)
