"""A cluster leaves nothing behind, however its tests end, and does not conflict with another."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from carpool.process.leftovers import marked
from tests.cluster.namespaces import SYSCTLS
from tests.cluster.node import require_node_tools
from tests.cluster.workspace import Workspace, control_groups
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
START = """\
import sys
from tests.cluster.cluster import with_node
print(with_node().kubeconfig, flush=True)
sys.stdin.read()
"""


def links() -> set[str]:
    """Return the network interfaces of clusters on this machine."""
    return {path.name for path in Path("/sys/class/net").glob("carpool*")}


def settings() -> dict[str, str]:
    """Return the kernel settings that a kubelet would change."""
    return {name: Path("/proc/sys", name).read_text() for name in SYSCTLS}


def test_restarted_process_ends_with_its_workspace() -> None:
    """A restarted process ends with its workspace, and only that workspace's folder is removed."""
    workspace, other = Workspace(), Workspace()
    first = workspace.start("sleeper", "sleep", "infinity")
    workspace.restart("sleeper")
    assert -signal.SIGKILL == first.returncode
    # Linux shows the environment of a program a moment after it has started.
    wait_until(lambda: 1 == len(marked(f"TMPDIR={workspace.folder}")), what="one process")
    workspace.check()
    workspace.close()
    assert [] == marked(f"TMPDIR={workspace.folder}")
    assert not workspace.folder.exists()
    assert other.folder.exists()
    other.close()


def test_process_ending_by_itself_fails_with_its_log() -> None:
    """A process that ends by itself fails the check with the end of its log."""
    workspace = Workspace()
    try:
        workspace.start("broken", "sh", "-c", "echo no such flag; exit 3").wait()
        with pytest.raises(AssertionError, match=r"broken ended with 3: no such flag"):
            workspace.check()
        with pytest.raises(AssertionError, match="false"):
            workspace.run("false")
    finally:
        workspace.close()


@pytest.mark.slow
def test_concurrent_clusters_run_and_a_killed_one_leaves_nothing() -> None:
    """No process, mount, network, control group or folder is left; kernel settings stay."""
    require_node_tools()
    before, kept = links(), settings()
    command = (sys.executable, "-c", START)
    runs = [
        subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    folders = [Path(_line(run)).parents[1] for run in runs]
    own = links() - before  # other clusters on this machine may come and go
    assert len(own) >= len(runs)
    assert all(marked(f"TMPDIR={folder}") for folder in folders)
    assert kept == settings()
    for run in runs:
        run.kill()
        run.communicate()
    for folder in folders:
        wait_until(lambda: not folder.exists(), what="the folder gone")  # noqa: B023
        assert [] == marked(f"TMPDIR={folder}")
        assert [] == [group for group in control_groups(folder.name) if group.exists()]
        assert folder.name not in Path("/proc/mounts").read_text()
    wait_until(lambda: not own & links(), what="the networks gone")
    assert kept == settings()


def _line(run: subprocess.Popen[str]) -> str:
    assert run.stdout is not None
    return run.stdout.readline().strip()
