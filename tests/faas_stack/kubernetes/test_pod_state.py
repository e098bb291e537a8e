"""What a pod's object says: shapes as a kubelet of 1.34 reports them."""

from __future__ import annotations

from typing import Any

import pytest

from faas_stack.provider.kubernetes.pod_state import read_pod

METADATA = {"name": "fn-1-a", "namespace": "team", "labels": {"com.carpool/id": "1d"}}


def condition(kind: str, *, true: bool, **more: str) -> dict[str, str]:
    """A condition of a pod."""
    return {"type": kind, "status": "True" if true else "False", **more}


def pod(*conditions: dict[str, str], ip: str = "10.1.2.3", **container: Any) -> dict[str, Any]:
    """A pod with one container."""
    status: dict[str, Any] = {"phase": "Running", "conditions": list(conditions), "podIP": ip}
    if container:
        status["containerStatuses"] = [container]
    return {"metadata": dict(METADATA), "status": status}


READY = condition("Ready", true=True)
UNREADY = condition("Ready", true=False)


def test_a_ready_pod() -> None:
    """It has an address and nothing to explain."""
    state = read_pod(pod(READY, restartCount=2, state={"running": {}}))
    assert ("fn-1-a", "team", "1d") == (state.name, state.namespace, state.id)
    assert ("10.1.2.3:8080", True, False, "", 2) == (
        *(state.address, state.ready, state.failing),
        *(state.reason, state.restarts),
    )
    assert "[fd00::1]:8080" == read_pod(pod(READY, ip="fd00::1")).address


def test_a_pod_that_was_told_to_end_gets_no_calls() -> None:
    """However ready it still is; nor does one that has ended."""
    leaving = pod(READY)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert (False, True) == (read_pod(leaving).ready, read_pod(leaving).leaving)
    evicted = pod(UNREADY)
    evicted["status"]["phase"] = "Failed"
    assert read_pod(evicted).leaving


@pytest.mark.parametrize(
    ("waiting", "failing", "reason"),
    [
        ({"reason": "ContainerCreating"}, False, ""),
        (
            {"reason": "ErrImagePull", "message": "no such host"},
            False,
            "ErrImagePull: no such host",
        ),
        (
            {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'},
            True,
            'ImagePullBackOff: Back-off pulling image "x"',
        ),
        ({"reason": "InvalidImageName"}, True, "InvalidImageName"),
    ],
)
def test_a_container_that_waits(waiting: dict[str, str], *, failing: bool, reason: str) -> None:
    """It says why, and whether to wait longer is of any use."""
    state = read_pod(pod(UNREADY, state={"waiting": waiting}))
    assert (False, failing, reason) == (state.ready, state.failing, state.reason)


def test_a_container_that_keeps_ending() -> None:
    """How it ended is told, and not that Kubernetes waits before it starts it again."""
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting"}
    state = read_pod(pod(UNREADY, state={"waiting": waiting}, lastState=ended))
    assert (True, "CrashLoopBackOff: ended with 137 (OOMKilled)") == (state.failing, state.reason)
    again = read_pod(pod(UNREADY, state={"running": {}}, lastState=ended))
    assert (False, "ended with 137 (OOMKilled)") == (again.failing, again.reason)


def test_a_pod_that_no_node_has_room_for() -> None:
    """What the scheduler says is the reason; room may come."""
    message = "0/1 nodes are available: 1 Insufficient cpu."
    unscheduled = condition("PodScheduled", true=False, reason="Unschedulable", message=message)
    state = read_pod(pod(unscheduled, ip=""))
    assert ("", False, f"Unschedulable: {message}") == (state.address, state.failing, state.reason)


def test_a_pod_of_a_lost_node() -> None:
    """Kubernetes changes one condition; of pods with gates of others that says nothing."""
    found = pod(UNREADY, condition("ContainersReady", true=True), state={"running": {}})
    assert "NodeNotReady: its node does not respond" == read_pod(found).reason
    assert "" == read_pod({**found, "spec": {"readinessGates": [{"conditionType": "x/y"}]}}).reason
    both = pod(UNREADY, condition("ContainersReady", true=False), state={"running": {}})
    assert "" == read_pod(both).reason


def test_a_pod_of_something_else() -> None:
    """It has no function's mark."""
    other = pod(READY)
    other["metadata"]["labels"] = {"app": "x"}
    with pytest.raises(KeyError):
        read_pod(other)
