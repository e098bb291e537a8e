"""Clusters for tests, each started when a test first asks for it; see docs/testing.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster import classify
from tests.cluster.cluster import foreign, with_api_server, with_controllers, with_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from _pytest.terminal import TerminalReporter

    from tests.cluster.cluster import Cluster

_FIGURE = "cluster-figure"  # of a test's report


@pytest.fixture(scope="session")
def api_server() -> Iterator[Cluster]:
    """An API server alone, which stores objects without acting on them."""
    yield from _opened(with_api_server)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """A complete control plane, for nodes simulated by kwok (`Cluster.fake_nodes`)."""
    yield from _opened(with_controllers)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A complete control plane with a real node."""
    yield from _opened(with_node)


@pytest.fixture(scope="session")
def classify_image(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Load the image of the README's function into the real node (`classify.IMAGE`)."""
    cluster.load_image(classify.archive(tmp_path_factory.mktemp("classify")))


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """A function that has a measured figure printed at the end of the run, for information only."""
    return lambda text: record_property(_FIGURE, text)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Print the measured figures, which are in the test reports of all processes."""
    reports = [
        each for name in ("passed", "failed") for each in terminalreporter.stats.get(name, [])
    ]
    lines = [
        str(value)
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in report.user_properties
        if name == _FIGURE
    ]
    if lines:
        terminalreporter.section("measured in clusters")
        for line in lines:
            terminalreporter.line(line)


def _opened(start: Callable[[], Cluster]) -> Iterator[Cluster]:
    opened = foreign() or start()
    try:
        yield opened
    finally:
        opened.close()
