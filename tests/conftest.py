"""Fixtures and hooks for all tests: models, a folder for state, an engine with its images."""

from __future__ import annotations

import gc
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

import carpool  # noqa: F401 - before any test imports ONNX Runtime, which then sends nothing
from tests.effort import scaled  # its profiles are known before any test asks for one
from tests.made_once import made_once
from tests.measured import MEASURED, STAND_INS, Data
from tests.tools import may_skip

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from tests.docker.engine import Engine
    from tests.docker.stage import DockerStage

_DOCKER_TIMEOUT_S = 1500  # the first such test makes the images

_CLUSTER_TIMEOUT_S = 900  # the first such test makes the files that its images are of

# Matrices of tests are small: further threads of NumPy would cost more than they compute, here and
# in every process that a test starts. It is read when NumPy is imported, which is yet to come.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# A shell starts what it runs in the background with SIGINT ignored, which programs inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return two workers per core, as tests wait half of the time for their processes."""
    return 2 * (os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Pause the garbage collector during collection, and exempt what was created.

    Collecting tests creates hardly any garbage.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Group tests that share an engine, a live stack or a cluster, and set their time limits.

    One worker runs the tests with containers, as they share an engine, and another one the live
    ones, as a whole stack and its browser keep all cores busy. So do the tests with a cluster,
    which is started once.

    In CI a slow test is retried once, as a shared machine may stall whole clusters. Each retry is
    reported.
    """
    retries = os.environ.get("CI") and config.pluginmanager.hasplugin("rerunfailures")
    for item in items:
        if retries and item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.flaky(reruns=1))
        if item.nodeid.startswith("tests/live/"):
            item.add_marker(pytest.mark.xdist_group("live"))
        if item.nodeid.startswith("tests/cluster/"):
            item.add_marker(pytest.mark.timeout(_CLUSTER_TIMEOUT_S))
            item.add_marker(pytest.mark.xdist_group("cluster"))
        if item.get_closest_marker("docker"):
            item.add_marker(pytest.mark.timeout(_DOCKER_TIMEOUT_S))
            item.add_marker(pytest.mark.xdist_group("docker"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn skips into failures in CI, except those that are allowed."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if not may_skip(reason):
            report.outcome = "failed"
            report.longrepr = f"this must not be skipped in CI. {reason}"
    return report


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep what commands store for their user, such as credentials, in temporary folders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(params=[STAND_INS, *MEASURED], ids=lambda d: "measured" if d.measured else "own")
def data(request: pytest.FixtureRequest) -> Data:
    """Latencies and loads: stand-ins, and measured ones where available."""
    chosen: Data = request.param
    return chosen


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Disable the garbage collector, so that a test notices reference cycles."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check policies in a part of the default scenarios in a quick run.

    The long run is shortened likewise, but still fills all windows of the past.
    """
    from carpool.testing import check_policy, check_scale_policy
    from sidecar.conformance import suite

    for check in (check_policy, check_scale_policy):
        defaults: dict[str, Any] = check.__kwdefaults__ or {}
        monkeypatch.setitem(defaults, "scenarios", scaled(defaults["scenarios"]))
    monkeypatch.setattr(suite, "_LONG", scaled(suite._LONG))


@pytest.fixture(scope="session")
def recurrent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A read-only folder with `model.onnx` and `decoder.onnx`, which respond step by step."""

    def make(folder: Path) -> None:
        from examples import models

        models.build("recurrent", folder)

    return made_once(tmp_path_factory, "recurrent", make) / "recurrent"


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[Engine]:
    """A Docker Engine: one that runs already, or one that is started for the tests."""
    from tests.docker.engine import running

    with running() as engine:
        yield engine


@pytest.fixture(scope="session")
def docker_images(docker_engine: Engine) -> None:  # noqa: ARG001 - it must run
    """Build Carpool's images from the current source."""
    from tests.docker.images import build

    build()


@pytest.fixture(scope="session")
def docker_stage(docker_images: None) -> DockerStage:  # noqa: ARG001 - they must be there
    """Stage that runs the provider tests in containers."""
    from tests.docker.stage import DockerStage

    return DockerStage()
