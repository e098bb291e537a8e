"""Tests of a function's pods and of the calls that wait for one."""

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
from faas_stack.provider.kubernetes.manifests import StoredFunction
from faas_stack.provider.kubernetes.pod_state import PodState
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

HANG_S = 60.0


def stored(replicas: int = 1, refusal: str = "") -> StoredFunction:
    """Return a function as its Deployment stores it."""
    deployment = Deployment.from_json(json.dumps({"service": "fn", "image": "img"}).encode())
    return StoredFunction("1d", "u1", 1, deployment, replicas, datetime.now(UTC), refusal)


def pod(name: str, *, ready: bool = True) -> PodState:
    """Return a pod with an address on which nothing listens."""
    return PodState(name, "1d", "127.0.0.1:9", ready=ready)


async def no_start() -> None:
    """Start nothing, as the function is not scaled to zero."""


def scene(test: Callable[[KubernetesFunction], Awaitable[None]]) -> Callable[[], None]:
    """Turn an asynchronous test into one that runs with a function without pods."""

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
async def test_call_waits_for_ready_pod(function: KubernetesFunction) -> None:
    """A call waits for the first ready pod and ignores unready and terminating ones."""
    call = asyncio.ensure_future(function.acquire(HANG_S, no_start))
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
    """Calls are balanced, as each goes to the less busy of two pods chosen at random."""
    for name in "abcdefgh":
        function.pod_changed(pod(name))
    for _ in range(800):
        await function.acquire(HANG_S, no_start)
    assert 800 == sum(replica.in_flight for replica in function.running)
    assert max(replica.in_flight for replica in function.running) <= 110  # by chance alone: 125
    assert min(replica.in_flight for replica in function.running) >= 90


@scene
async def test_call_for_failing_pod_is_refused_at_once(function: KubernetesFunction) -> None:
    """A call for a pod that keeps failing is refused at once, and the status gives the reason."""
    reason = "ImagePullBackOff: no such image"
    function.pod_changed(replace(pod("a", ready=False), failing=True, reason=reason))
    with pytest.raises(Overloaded, match=r"keeps failing to start; its logs say more$"):
        await function.acquire(HANG_S, no_start)
    assert f"a: {reason}" == function.status()["annotations"]["kubernetes.reason"]
    function.pod_changed(pod("b"))  # of another revision
    assert "b" == (await function.acquire(HANG_S, no_start)).instance.name


@scene
async def test_call_waits_for_update_of_failing_function(
    function: KubernetesFunction,
) -> None:
    """After an update of a failing function, calls wait until a pod of the update fails, too."""
    function.pod_changed(replace(pod("a", ready=False), failing=True))
    function.update(replace(stored(), version=2, revision="r2"))
    call = asyncio.ensure_future(function.acquire(HANG_S, no_start))
    await asyncio.sleep(0)
    assert not call.done()
    function.pod_changed(replace(pod("b", ready=False), revision="r2"))
    await asyncio.sleep(0)
    assert not call.done()
    function.pod_changed(replace(pod("b", ready=False), revision="r2", failing=True))
    with pytest.raises(Overloaded, match="keeps failing to start"):
        await call


@scene
async def test_call_that_waits_too_long_is_refused(function: KubernetesFunction) -> None:
    """A call that waits too long is refused, and only the status gives the reason, here a quota."""
    function.update(replace(stored(), refusal="exceeded quota"))
    with pytest.raises(Overloaded, match=r"no ready replica after 0.05 s$"):
        await function.acquire(0.05, no_start)
    assert {"kubernetes.reason": "exceeded quota"} == function.status()["annotations"]
    function.pod_changed(pod("a"))
    assert {} == function.status()["annotations"]


@scene
async def test_removal_ends_waiting_calls(function: KubernetesFunction) -> None:
    """Removing a function ends its waiting calls; calls in a pod keep it until the pod is gone."""
    function.pod_changed(pod("a"))
    replica = await function.acquire(HANG_S, no_start)
    function.pod_changed(replace(pod("a", ready=False), leaving=True))
    call = asyncio.ensure_future(function.acquire(HANG_S, no_start))
    await asyncio.sleep(0)
    function.remove()
    with pytest.raises(NotFound, match="was removed"):
        await call
    assert [replica] == list(function.running)
    function.pod_gone("a")
    assert [] == list(function.running)


@scene
async def test_unreachable_pod_gets_no_calls_until_it_responds(
    function: KubernetesFunction,
) -> None:
    """A pod that a call could not reach gets no calls until it responds, even if it is ready."""
    function.pod_changed(pod("a"))
    (await function.acquire(HANG_S, no_start)).instance.suspect()
    assert 0 == function.available
    function.pod_changed(pod("b"))
    for _ in range(20):
        assert "b" == (await function.acquire(HANG_S, no_start)).instance.name


@scene
async def test_pod_that_announces_bundles_gets_bundled_calls(function: KubernetesFunction) -> None:
    """A pod gets bundled calls once it has announced them in its first response."""
    told = [(CALLS_HEADER, "true")]
    server = await serve(lambda e: e.reply(200, headers=told), listen="127.0.0.1:0")
    function.pod_changed(replace(pod("a"), address=server.address))
    replica = function.choose()
    assert replica
    assert None is replica.calls
    await function.acquire(HANG_S, no_start)
    await wait_until_async(lambda: replica.calls is not None)
    assert 1 == replica.in_flight
    await server.stop()


@scene
async def test_cancelled_calls_do_not_count_towards_limit(
    function: KubernetesFunction,
) -> None:
    """Calls above the limit are refused; cancelled calls do not count towards it."""
    calls = [asyncio.ensure_future(function.acquire(HANG_S, no_start)) for _ in range(4096)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="too many requests wait"):
        await function.acquire(HANG_S, no_start)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    with pytest.raises(Overloaded, match=r"no ready replica after 0.01 s"):
        await function.acquire(0.01, no_start)


@scene
async def test_removed_pod_is_not_probed(function: KubernetesFunction) -> None:
    """A removed pod is not probed any more, even if one of its calls reports a failure later."""

    async def ended() -> set[asyncio.Task[object]]:
        """Return the tasks that still run after the cancelled ones have had time to end."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        return (await asyncio.wait(others, timeout=0.5))[1] if others else set()

    function.pod_changed(pod("a"))
    instance = (await function.acquire(HANG_S, no_start)).instance
    function.pod_gone("a")
    assert set() == await ended()
    instance.suspect()
    assert set() == await ended()
