"""Scalers with a real API server: the Lease, the nodes, and two processes, one of them killed."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from carpool.errors import CarpoolError
from scaler.control.class_function import CLASS_LABEL
from scaler.kubernetes.api_server import ApiServer
from scaler.kubernetes.election import Election
from scaler.kubernetes.lease import Record, Timing
from scaler.planning.placement import Node
from tests.cluster.chart import Installed
from tests.cluster.plain_nodes import make_node, make_pod
from tests.cluster.scaler_process import ScalerProcess
from tests.waiting import wait_until, wait_until_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slow  # it starts an API server
TAKEOVER_S = 15.0
UNHURRIED = Timing(duration_s=3600.0, deadline_s=1800.0, renew_s=0.1)  # no renewal is too late


@pytest.fixture
def lease(api_server: Cluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a Lease in a new namespace of the cluster that `ApiServer` calls."""
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    return f"{api_server.namespace()}/scaler"


def test_lease_write_with_outdated_version_is_refused(lease: str) -> None:
    """A Lease is read as written, and a writer that has read an older version is refused."""
    api = ApiServer(lease)
    assert api.read() is None
    record = Record("a_1", "10.0.0.1:8090", 1_700_000_000_123, 1_700_000_000_456, 10.0)
    written = api.write(record)
    assert written == api.read()
    assert written.version
    assert ("a_1", "10.0.0.1:8090", 1_700_000_000_123, 1_700_000_000_456, 10.0, 0) == (
        *(written.holder, written.address, written.term_ms, written.renewed_ms),
        *(written.duration_s, written.transitions),
    )
    with pytest.raises(CarpoolError, match="already exists"):
        api.write(record)
    later = api.write(replace(written, renewed_ms=1_700_000_000_789))
    with pytest.raises(CarpoolError, match="the object has been modified"):
        api.write(written)
    assert later.version != written.version
    api.close()


def test_second_candidate_leads_once_the_first_has_ended(lease: str) -> None:
    """The second candidate leads in a later term once the first has ended."""

    async def scene() -> None:
        api = ApiServer(lease)
        first, second = (Election(api, f"10.0.0.{n}:8090", UNHURRIED) for n in (1, 2))
        running = asyncio.create_task(first.run())
        term = await first.won()
        other = asyncio.create_task(second.run())
        await wait_until_async(lambda: second.leader == "10.0.0.1:8090", what="a known leader")
        assert not second.term
        assert not first.leader  # it is the leader itself
        running.cancel()
        await asyncio.wait([running])
        assert await second.won() > term
        assert not first.term
        other.cancel()
        await asyncio.wait([other])
        api.close()

    asyncio.run(scene())


def test_leader_that_cannot_renew_loses_leadership(lease: str, api_server: Cluster) -> None:
    """A leader that cannot renew loses, and leads again in a later term once it can."""
    namespace, _, name = lease.partition("/")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}"

    async def scene() -> None:
        api = ApiServer(lease)
        election = Election(api, "10.0.0.1:8090", UNHURRIED)
        running = asyncio.create_task(election.run())
        term = await election.won()
        spec = {"holderIdentity": "another", "leaseDurationSeconds": 1}
        await asyncio.to_thread(api_server.api.patch, path, {"spec": spec})
        await election.lost(term)
        assert await election.won() > term
        running.cancel()
        await asyncio.wait([running])
        api.close()

    asyncio.run(scene())


def test_nodes_are_listed_with_free_resources(
    api_server: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes are listed with their free resources, not counting instances of classes as used."""
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    namespace = api_server.namespace()
    names = [f"{namespace}-{letter}" for letter in "abc"]
    for name, gpus in zip(names, ("0", "8", "0"), strict=True):
        make_node(api_server, name, gpus)
    api_server.api.patch(f"/api/v1/nodes/{names[2]}", {"spec": {"unschedulable": True}})
    make_pod(api_server, namespace, names[0], "1500m", {"app": "other"})
    make_pod(api_server, namespace, names[0], "2", {CLASS_LABEL: "b1-c2"})
    make_pod(api_server, namespace, names[0], "3", {"app": "over"}, phase="Succeeded")

    def listed() -> dict[str, Node]:
        api = ApiServer("default/any", gpu_slots=4)
        try:
            return {each.name: each for each in api.nodes()}
        finally:
            api.close()

    # The API server's memory is behind its store.
    expected = Node(names[0], 2.5, 0, 8589.934592, 4)
    wait_until(lambda: listed().get(names[0]) == expected and names[2] not in listed())
    found = listed()
    assert (2, 4) == (found[names[1]].gpus, found[names[1]].gpu_slots)
    for name in names:
        api_server.api.delete(f"/api/v1/nodes/{name}")


@contextmanager
def _scalers(folder: Path, installed: Installed) -> Iterator[list[ScalerProcess]]:
    """Run two scalers with the chart's account and Lease, of which the first leads."""
    kubeconfig, lease = installed.as_account("carpool-scaler").kubeconfig, "carpool-scaler"
    nowhere = ("--gateway", "http://127.0.0.1:1")
    started: list[ScalerProcess] = []
    try:
        for name in ("first", "second"):
            where = f"{installed.home}/{lease}"
            started.append(ScalerProcess(folder / name, kubeconfig, where, *nowhere))
            started[0].wait()
        yield started
    finally:
        for each in started:
            each.end()


@pytest.mark.timing
def test_a_killed_leader_is_replaced(
    api_server: Cluster, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """With only the chart's account, the other scaler forwards requests, then takes over."""
    installed = Installed(api_server, tmp_path)
    installed.apply_access()
    with _scalers(tmp_path, installed) as (first, second):
        wait_until(lambda: second.status() == 200, what="the second passes requests on")
        assert (1, 0) == (first.terms, second.terms)
        assert "no node accepts instances" in first.log()
        killed_s = time.monotonic()
        first.running.send_signal(signal.SIGKILL)
        first.running.wait()
        wait_until(lambda: second.terms == 1, what="the second leads")
        took_s = time.monotonic() - killed_s
        figure(f"scaler: takeover {took_s:.1f} s after SIGKILL of the leader")
        wait_until(lambda: second.status() == 200, what="the second answers")
        lease = api_server.api.get(
            f"/apis/coordination.k8s.io/v1/namespaces/{installed.home}/leases/carpool-scaler"
        )
        assert 1 == lease["spec"]["leaseTransitions"]
        assert took_s <= TAKEOVER_S


@pytest.mark.timing
def test_resumed_leader_follows_the_new_leader(api_server: Cluster, tmp_path: Path) -> None:
    """A leader that resumes finds that another one leads, and forwards requests to it."""
    installed = Installed(api_server, tmp_path)
    installed.apply_access()
    with _scalers(tmp_path, installed) as (first, second):
        first.running.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: second.terms == 1, what="the second leads")
        finally:
            first.running.send_signal(signal.SIGCONT)
        wait_until(lambda: "no longer leading" in first.log(), what="the first gives up")
        wait_until(lambda: first.status() == 200, what="the first passes requests on")
        assert (1, 1) == (first.terms, second.terms)
