"""A real Prometheus reads the metrics of all parts of a real stack, and counts requests."""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from tests.live.load import Steady, all_are_answered
from tests.live.prometheus import prometheus
from tests.live.stack import stack, write_function
from tests.live.test_live import until_planned
from tests.tools import require_tool
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.live.prometheus import RealPrometheus
    from tests.live.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_RATE_RPS = 40


def notes(running: Stack) -> str:
    """Return the problems of ``echo`` that the scaler sees."""
    return str(running.explain().get("notes"))


def test_different_counts_of_prometheus_and_sidecars_are_reported(tmp_path: Path) -> None:
    """Only calls past the provider, a lost target, and a lost Prometheus are reported."""
    write_function(tmp_path)
    (tmp_path / "p").mkdir()
    with (
        prometheus(tmp_path / "p") as second,
        stack(tmp_path, f"--prometheus {second.url}") as running,
    ):
        provider = running.url.removeprefix("http://")
        second.reads(provider, running)
        answered = until_planned(running).sent
        answered += _agrees(running, second)
        _all_have_counted(second, answered)
        _who_calls_past_the_provider_is_noticed(running)
        steady = Steady(running.url, _RATE_RPS)
        second.reads("127.0.0.1:1", running)
        wait_until(lambda: "Prometheus has no count" in notes(running), what="the missing target")
        second.reads(provider, running)
        wait_until(lambda: "Prometheus" not in notes(running), what="the target again")
        all_are_answered(steady.over())
        second.ended()
        wait_until(lambda: "cannot be queried" in trouble(running), what="Prometheus to be missed")
        said = "only sidecars count requests"
        wait_until(lambda: said in "".join(running.up.said), what="that in the log")
        assert 1 == "".join(running.up.said).count(said)


def trouble(running: Stack) -> str:
    """Return what the scaler reports about other sources."""
    return str(running.ask_scaler("/v1/functions").json()["trouble"])


def _agrees(running: Stack, second: RealPrometheus) -> int:
    """Check that no disagreement is reported under load; return the number of requests."""
    steady, judged = Steady(running.url, _RATE_RPS), threading.Event()
    for _ in range(75):
        judged.wait(1)
        assert "Prometheus" not in notes(running)
        assert "" == trouble(running)
    up = {"provider": ["up"], "scaler": ["up"], "sidecar": ["up", "up"]}
    wait_until(
        lambda: up == {job: told for job, told in second.targets().items() if job != "gateway"},
        what="every target to be up",
    )
    outcome = steady.over()
    all_are_answered(outcome)
    return outcome.sent


def _all_have_counted(second: RealPrometheus, answered: int) -> None:
    """Check the counts of provider, front and scaler as Prometheus has read them."""
    by_all = {
        "sum(provider_function_invocations_total{code='200'})",
        "sum(batch_requests_total{state='done', function_name='echo.openfaas-fn'})",
        "sum(scaler_requests_total{state='done', function_name='echo'})",
    }
    for query in by_all:
        wait_until(lambda q=query: {"": answered} == second.ask(q), what=query)  # type: ignore[misc]


def _who_calls_past_the_provider_is_noticed(running: Stack) -> None:
    """Calls past the provider are reported while they last, and no longer."""
    (front,) = running.fronts().values()
    steady = Steady(front, _RATE_RPS, path="/")
    try:
        said = "Prometheus does not see"
        wait_until(lambda: said in notes(running), what="the calls past the provider")
    finally:
        all_are_answered(steady.over())
    wait_until(lambda: said not in notes(running), what="agreement again")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the metrics of each part of a stack that has served requests."""
    folder = tmp_path_factory.mktemp("exported")
    write_function(folder)
    with stack(folder) as running:
        all_are_answered(until_planned(running))
        wait_until(lambda: any("--" in name for name in targets(running)), what="an instance")
        paths = targets(running)
        (front,) = (path for name, path in paths.items() if "--" not in name)
        instance, *_ = (path for name, path in paths.items() if "--" in name)  # as many as planned
        where = {"provider": "/metrics", "front": front, "instance": instance}
        told = {part: running.system("GET", path).text for part, path in where.items()}
        yield {**told, "scaler": running.ask_scaler("/metrics").text}


def targets(running: Stack) -> dict[str, str]:
    """Return the addresses of the metrics of each front and instance."""
    listed = running.system("GET", "/metrics/targets").json()
    labels = [group["labels"] for group in listed]
    return {each["instance"]: each["__metrics_path__"] for each in labels}


@pytest.mark.parametrize("part", ["provider", "scaler", "front", "instance"])
def test_prometheus_accepts_metrics(exported: dict[str, str], part: str) -> None:
    """Prometheus's own checker accepts names, units, types and help texts."""
    checked = (require_tool("promtool"), "check", "metrics")
    done = subprocess.run(
        checked, input=exported[part], check=False, capture_output=True, text=True, timeout=HANG_S
    )
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
