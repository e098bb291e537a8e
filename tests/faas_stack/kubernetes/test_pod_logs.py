"""Tests of pod logs: limited memory, and longer waits for pods whose logs keep ending."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import uvloop

from faas_stack.provider.kubernetes import pod_logs
from faas_stack.provider.kubernetes.kubernetes_function import KubernetesFunction
from faas_stack.provider.kubernetes.pod_logs import NewestLines, PodLogs
from faas_stack.provider.logs import LogLine, LogQuery
from tests.faas_stack.kubernetes.scripted_cluster import NAMESPACE, ScriptedCluster, connected
from tests.faas_stack.kubernetes.test_kubernetes_function import pod, stored

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from carpool.http.server import Exchange

BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def printed(number: int, text: str = "") -> bytes:
    """Return a log line as a kubelet sends it."""
    time = (BEGAN + timedelta(seconds=number)).isoformat()
    return f"{time} {text or f'line {number}'}\n".encode()


def at(name: str) -> tuple[str, str]:
    """Return the method and path of the request for a pod's log."""
    return "GET", f"{NAMESPACE}/pods/{name}/log"


def test_the_newest_lines_are_kept() -> None:
    """The newest lines are kept, limited by number and size, in any order; the last one always."""
    lines = [LogLine("a", BEGAN + timedelta(seconds=n), "x" * 10) for n in (3, 1, 5, 2, 4)]
    by_number, by_size = NewestLines(2, 1000), NewestLines(100, 35)
    for line in lines:
        by_number.add(line)
        by_size.add(line)
    assert [4, 5] == [(each.timestamp - BEGAN).seconds for each in by_number.sorted()]
    assert [3, 4, 5] == [(each.timestamp - BEGAN).seconds for each in by_size.sorted()]
    by_size.add(LogLine("a", BEGAN + timedelta(seconds=6), "x" * 100))
    assert ["x" * 100] == [each.text for each in by_size.sorted()]


def test_each_pod_is_asked_for_wanted_lines_only(tmp_path: Path) -> None:
    """Each of many pods is asked for no more lines than wanted, and long lines are cut."""
    cluster = ScriptedCluster()
    names = [f"p{n}" for n in range(40)]

    def give(exchange: Exchange) -> bool:
        number = int(exchange.path.split("/")[-2].removeprefix("p"))
        exchange.reply(200, printed(number) + printed(100, "y" * 200_000) * (number == 7))
        return True

    async def scene() -> None:
        function = KubernetesFunction(stored())
        async with connected(cluster, tmp_path) as api:
            for name in names:
                function.pod_changed(pod(name, ready=False))
                cluster.first[at(name)] = [give]
            async with aclosing(PodLogs(api, function, LogQuery(tail=3)).lines()) as batches:
                found = await anext(batches)
        assert ["line 38", "line 39"] == [line.text for line in found[:2]]
        assert 60_000 < len(found[2].text) <= 64 * 1024
        function.close()

    uvloop.run(scene())
    queries = [query for *_, query in cluster.asked]
    assert 40 == len(queries)
    assert {"3"} == {query["tailLines"] for query in queries}
    assert all(int(query["limitBytes"]) > 0 for query in queries)


def test_ended_log_is_requested_again_after_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod whose log ends is asked again after a wait, however much the others print."""
    waits: list[float] = []

    class Never:
        def __init__(self, *_: float) -> None: ...

        def after(self, lifetime_s: float) -> float:
            waits.append(lifetime_s)
            return 3600.0

    monkeypatch.setattr(pod_logs, "Backoff", Never)
    cluster, streams = ScriptedCluster(), []

    def end(exchange: Exchange) -> bool:
        exchange.reply(200, b"")
        return True

    def begin(exchange: Exchange) -> bool:
        exchange.start(200, [("content-type", "text/plain")])
        exchange.write(printed(0))
        streams.append(exchange)
        return True

    async def scene() -> None:
        function = KubernetesFunction(stored())
        async with connected(cluster, tmp_path) as api:
            for name, follows in (("ends", [end] * 20), ("goes-on", [begin])):
                function.pod_changed(pod(name))
                cluster.first[at(name)] = [end, *follows]
            async with aclosing(PodLogs(api, function, LogQuery(follow=True)).lines()) as batches:
                assert [] == await anext(batches)
                for number in range(5):
                    assert [f"line {number}"] == [line.text for line in await anext(batches)]
                    streams[0].write(printed(number + 1))
        function.close()

    uvloop.run(scene())
    assert 2 == cluster.requests(*at("ends"))  # what there is, and once what comes
    assert 1 == len(waits)
