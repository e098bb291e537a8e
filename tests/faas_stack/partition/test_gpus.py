"""Tests of GPUs that need none: environments, responses of the MPS daemon, refusals."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from faas_stack.partition import mps, nvml
from faas_stack.partition.allocation import Assignment
from faas_stack.partition.cgroup_limits import Unusable
from faas_stack.partition.gpus import Gpus
from faas_stack.partition.mps import CONTROL, Mps
from faas_stack.partition.nvml import GpuDevice
from faas_stack.partition.resources import Resources

GIB = 2**30
GPU = GpuDevice("GPU-1", 80 * GIB)
MIG = GpuDevice("MIG-1", 10 * GIB, mig=True)
HALF = Resources(gpus=1, gpu_percent=50)

needs_no_daemon = pytest.mark.skipif(
    shutil.which(CONTROL) is not None, reason="this machine has the MPS of a GPU"
)


def test_client_environment_has_pipe_and_share() -> None:
    """The environment has the pipe, the percentage, and the same share of each GPU's memory."""
    assert {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "12.5",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1024M,1=2048M",
    } == mps.client_environment(Path("/run/mps"), 12.5, [8 * GIB, 16 * GIB])


@pytest.mark.parametrize(("answer", "pids"), [("", []), ("\n", []), ("812\n", [812])])
def test_daemon_server_list_is_parsed(answer: str, pids: list[int]) -> None:
    """The daemon lists one process id per line, and none before the first client."""
    assert pids == mps.server_pids(answer)


def test_unexpected_daemon_response_is_quoted() -> None:
    """An unexpected response of the daemon is quoted in the error."""
    with pytest.raises(Unusable, match="'Cannot find MPS control daemon process'"):
        mps.server_pids("Cannot find MPS control daemon process\n")


@needs_no_daemon
def test_missing_mps_program_is_named(tmp_path: Path) -> None:
    """A missing MPS program is named, and a note says that functions take turns on the GPU."""
    daemon = Mps(tmp_path, ["GPU-1"], tmp_path / "theirs")
    assert not daemon.runs
    with pytest.raises(Unusable, match=f"{CONTROL} is not on the PATH; it is part of NVIDIA's"):
        daemon.ensure()
    with pytest.raises(Unusable, match=CONTROL):
        daemon.servers()
    daemon.stop()
    gpus = Gpus([GPU], tmp_path)
    assert gpus.prepare().startswith("no MPS, so functions on the same GPU take turns (")
    assert {"CUDA_VISIBLE_DEVICES": "GPU-1"} == gpus.environment(Assignment(HALF, (), ("GPU-1",)))


def test_running_daemon_is_used(tmp_path: Path) -> None:
    """A daemon of the same user that runs already is neither started again nor stopped."""
    (tmp_path / f"{CONTROL}.pid").write_text(f"{os.getpid()}\n")
    daemon = Mps(tmp_path / "own", ["GPU-1"], tmp_path)
    daemon.ensure()
    assert (True, tmp_path) == (daemon.runs, daemon.pipe)
    daemon.stop()
    assert not (tmp_path / "own").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_daemon_of_another_user_is_refused(tmp_path: Path) -> None:
    """Another user's daemon is refused, as it would not serve our instances."""
    process = subprocess.Popen(["/bin/sleep", "60"], user=65534, group=65534, extra_groups=[])
    (tmp_path / f"{CONTROL}.pid").write_text(f"{process.pid}\n")
    with pytest.raises(
        Unusable, match="is user 65534's and serves only that user;  end it, or run"
    ):
        Mps(tmp_path / "own", [], tmp_path).ensure()
    process.kill()
    process.wait()


def test_stale_pid_file_is_not_a_daemon(tmp_path: Path) -> None:
    """A process id file without its process does not count as a daemon."""
    (tmp_path / f"{CONTROL}.pid").write_text(f"{2**22 + 1}\n")
    assert not Mps(tmp_path / "own", [], tmp_path).runs


def test_mig_instances_are_used_without_mps(tmp_path: Path) -> None:
    """MIG instances are used by their UUID and without MPS."""
    gpus = Gpus([MIG], tmp_path)
    assert ("MIG-1",) == gpus.names
    assert {"CUDA_VISIBLE_DEVICES": "MIG-1"} == gpus.environment(Assignment(HALF, (), ("MIG-1",)))
    assert "MIG instances: functions on the same one take turns" == gpus.prepare()
    assert {} == gpus.environment(Assignment(Resources(cpu=1.0)))


def test_missing_module_driver_or_gpu_is_named(tmp_path: Path) -> None:
    """Without module, driver or GPU, none is found, and the reason is kept for refusals."""
    gpus = Gpus.find(tmp_path)
    if gpus.names:
        pytest.skip("there is a GPU")
    assert "nvidia-ml-py is not installed" in gpus.why or "NVIDIA's driver" in gpus.why
    with pytest.raises(Unusable, match=r"nvidia-ml-py|NVIDIA's driver"):
        nvml.devices()
    with pytest.raises(Unusable, match=r"nvidia-ml-py|NVIDIA's driver"):
        nvml.busy_percent("GPU-1")
