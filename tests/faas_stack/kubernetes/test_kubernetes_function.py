"""A function's pods and the calls that wait for one."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
import uvloop

from carpool.errors import NotFound, Overloaded
from carpool.http.server import serve
from carpool.wire import CALLS_HEADER
from faas_stack.provider.deployment import Deployment
from faas_stack.provider.kubernetes.kubernetes_function import KubernetesFunction
from faas_stack.provider.kubernetes.objects import StoredFunction
from faas_stack.provider.kubernetes.pod_state import PodState
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HANG_S = 60.0


def stored(replicas: int = 1, refusal: str = "") -> StoredFunction:
    """A function as its Deployment keeps it."""
    deployment = Deployment.from_json(json.dumps({"service": "fn", "image": "img"}).encode())
    return StoredFunction("1d", "u1", 1, deployment, replicas, datetime.now(UTC), refusal)


def pod(name: str, *, ready: bool = True) -> PodState:
    """One whose address nothing listens at."""
    return PodState(name, "openfaas-fn", "1d", "127.0.0.1:9", ready=ready)


def scene(test: Callable[[KubernetesFunction], Awaitable[None]]) -> Callable[[], None]:
    """Run with a function without pods."""

    async def play() -> None:
        function = KubernetesFunction(stored())
        try:
            await test(function)
        finally:
            function.close()

    def run() -> None:
        uvloop.run(play())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@scene
async def test_a_call_waits_for_a_pod(function: KubernetesFunction) -> None:
    """It gets the first that is ready, and not one that is not, or is to end."""
    call = asyncio.ensure_future(function.acquire(HANG_S))
    function.pod_changed(pod("a", ready=False))
    function.pod_changed(replace(pod("b", ready=False), leaving=True))
    await asyncio.sleep(0)
    assert not call.done()
    assert 0 == function.available
    function.pod_changed(pod("c"))
    replica = await call
    assert ("c", 1, 1) == (replica.instance.name, replica.in_flight, function.available)


@scene
async def test_calls_are_spread(function: KubernetesFunction) -> None:
    """Of two pods chosen by chance, the one with fewer calls: none gets many more than the rest."""
    for name in "abcdefgh":
        function.pod_changed(pod(name))
    for _ in range(800):
        await function.acquire(HANG_S)
    assert 800 == sum(replica.in_flight for replica in function.running)
    assert max(replica.in_flight for replica in function.running) <= 110  # by chance alone: 125
    assert min(replica.in_flight for replica in function.running) >= 90


@scene
async def test_waiting_for_what_cannot_start(function: KubernetesFunction) -> None:
    """It is refused at once; what Kubernetes says is in the status."""
    reason = "ImagePullBackOff: no such image"
    function.pod_changed(replace(pod("a", ready=False), failing=True, reason=reason))
    with pytest.raises(Overloaded, match=r"keeps failing to start; its logs say more$"):
        await function.acquire(HANG_S)
    assert f"a: {reason}" == function.status()["annotations"]["kubernetes.reason"]
    function.pod_changed(pod("b"))  # of another revision
    assert "b" == (await function.acquire(HANG_S)).instance.name


@scene
async def test_a_call_waits_for_an_update_of_what_cannot_start(
    function: KubernetesFunction,
) -> None:
    """Until the first pod of the update is seen, and as long as that does not fail, too."""
    function.pod_changed(replace(pod("a", ready=False), failing=True))
    function.update(replace(stored(), version=2, revision="r2"))
    call = asyncio.ensure_future(function.acquire(HANG_S))
    await asyncio.sleep(0)
    assert not call.done()
    function.pod_changed(replace(pod("b", ready=False), revision="r2"))
    await asyncio.sleep(0)
    assert not call.done()
    function.pod_changed(replace(pod("b", ready=False), revision="r2", failing=True))
    with pytest.raises(Overloaded, match="keeps failing to start"):
        await call


@scene
async def test_patience_ends(function: KubernetesFunction) -> None:
    """The reason, here that of a quota, is for clients that may read the status."""
    function.update(replace(stored(), refusal="exceeded quota"))
    with pytest.raises(Overloaded, match=r"no ready replica after 0.05 s$"):
        await function.acquire(0.05)
    assert {"kubernetes.reason": "exceeded quota"} == function.status()["annotations"]
    function.pod_changed(pod("a"))
    assert {} == function.status()["annotations"]


@scene
async def test_a_function_that_is_removed_while_a_call_waits(function: KubernetesFunction) -> None:
    """The call ends; one that has a pod keeps it until the pod is gone."""
    function.pod_changed(pod("a"))
    replica = await function.acquire(HANG_S)
    function.pod_changed(replace(pod("a", ready=False), leaving=True))
    call = asyncio.ensure_future(function.acquire(HANG_S))
    await asyncio.sleep(0)
    function.remove()
    with pytest.raises(NotFound, match="was removed"):
        await call
    assert [replica] == list(function.running)
    function.pod_gone("a")
    assert [] == list(function.running)


@scene
async def test_a_pod_that_a_call_could_not_reach(function: KubernetesFunction) -> None:
    """It gets no calls, though Kubernetes calls it ready, until it has answered."""
    function.pod_changed(pod("a"))
    (await function.acquire(HANG_S)).instance.suspect()
    assert 0 == function.available
    function.pod_changed(pod("b"))
    for _ in range(20):
        assert "b" == (await function.acquire(HANG_S)).instance.name


@scene
async def test_a_pod_that_takes_calls_in_bundles(function: KubernetesFunction) -> None:
    """It says so when it is called first; until then each call has a connection of its own."""
    told = [(CALLS_HEADER, "true")]
    server = await serve(lambda e: e.reply(200, headers=told), listen="127.0.0.1:0")
    function.pod_changed(replace(pod("a"), address=server.address))
    replica = function.choose()
    assert replica
    assert None is replica.calls
    await function.acquire(HANG_S)
    await wait_until_async(lambda: replica.calls is not None)
    assert 1 == replica.in_flight
    await server.stop()


@scene
async def test_calls_that_gave_up_count_no_more(
    function: KubernetesFunction,
) -> None:
    """Too many at once are refused; those whose patience or client has gone are not of them."""
    calls = [asyncio.ensure_future(function.acquire(HANG_S)) for _ in range(4096)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="too many requests wait"):
        await function.acquire(HANG_S)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    with pytest.raises(Overloaded, match=r"no ready replica after 0.01 s"):
        await function.acquire(0.01)


@scene
async def test_a_pod_that_is_gone_is_asked_no_more(function: KubernetesFunction) -> None:
    """Also where a call that it had finds out afterwards, as its connection is closed with it."""

    async def ended() -> set[asyncio.Task[object]]:
        """What still runs when all that was cancelled has had time to end."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        return (await asyncio.wait(others, timeout=0.5))[1] if others else set()

    function.pod_changed(pod("a"))
    instance = (await function.acquire(HANG_S)).instance
    function.pod_gone("a")
    assert set() == await ended()
    instance.suspect()
    assert set() == await ended()
