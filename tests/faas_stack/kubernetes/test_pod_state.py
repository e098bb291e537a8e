"""Tests of reading pod objects, in the shapes that a kubelet of 1.34 reports."""

from __future__ import annotations

from typing import Any

import pytest

from faas_stack.provider.kubernetes.pod_state import read_pod

METADATA = {"name": "fn-1-a", "namespace": "team", "labels": {"com.carpool/id": "1d"}}


def condition(kind: str, *, true: bool, **more: str) -> dict[str, str]:
    """Return a condition of a pod."""
    return {"type": kind, "status": "True" if true else "False", **more}


def pod(*conditions: dict[str, str], ip: str = "10.1.2.3", **container: Any) -> dict[str, Any]:
    """Return a pod with at most one container status."""
    status: dict[str, Any] = {"phase": "Running", "conditions": list(conditions), "podIP": ip}
    if container:
        status["containerStatuses"] = [container]
    return {"metadata": dict(METADATA), "status": status}


READY = condition("Ready", true=True)
UNREADY = condition("Ready", true=False)


def test_ready_pod_has_address_and_no_reason() -> None:
    """A ready pod has an address and no reason to report."""
    state = read_pod(pod(READY, restartCount=2, state={"running": {}}))
    assert ("fn-1-a", "1d") == (state.name, state.id)
    assert ("10.1.2.3:8080", True, False, "", 2) == (
        *(state.address, state.ready, state.failing),
        *(state.reason, state.restarts),
    )
    assert "[fd00::1]:8080" == read_pod(pod(READY, ip="fd00::1")).address


def test_terminating_pod_gets_no_calls() -> None:
    """A pod that is terminating, though still ready, or has ended gets no calls."""
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
def test_waiting_container_reports_reason(
    waiting: dict[str, str], *, failing: bool, reason: str
) -> None:
    """A waiting container reports its reason and whether it is failing."""
    state = read_pod(pod(UNREADY, state={"waiting": waiting}))
    assert (False, failing, reason) == (state.ready, state.failing, state.reason)


def test_crashing_container_reports_how_it_ended() -> None:
    """A container that keeps ending reports how it ended, not the wait before a restart."""
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    waiting = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting"}
    state = read_pod(pod(UNREADY, state={"waiting": waiting}, lastState=ended))
    assert (True, "CrashLoopBackOff: ended with 137 (OOMKilled)") == (state.failing, state.reason)
    again = read_pod(pod(UNREADY, state={"running": {}}, lastState=ended))
    assert (False, "ended with 137 (OOMKilled)") == (again.failing, again.reason)


def test_unschedulable_pod_is_not_failing() -> None:
    """A pod that cannot be scheduled reports the scheduler's message and is not failing."""
    message = "0/1 nodes are available: 1 Insufficient cpu."
    unscheduled = condition("PodScheduled", true=False, reason="Unschedulable", message=message)
    state = read_pod(pod(unscheduled, ip=""))
    assert ("", False, f"Unschedulable: {message}") == (state.address, state.failing, state.reason)


def test_unready_pod_with_ready_containers_is_on_lost_node() -> None:
    """An unready pod with ready containers is on a lost node, unless it has readiness gates."""
    found = pod(UNREADY, condition("ContainersReady", true=True), state={"running": {}})
    assert "NodeNotReady: its node does not respond" == read_pod(found).reason
    assert "" == read_pod({**found, "spec": {"readinessGates": [{"conditionType": "x/y"}]}}).reason
    both = pod(UNREADY, condition("ContainersReady", true=False), state={"running": {}})
    assert "" == read_pod(both).reason


def test_pod_without_function_label_cannot_be_read() -> None:
    """A pod without a function's label cannot be read as one of a function."""
    other = pod(READY)
    other["metadata"]["labels"] = {"app": "x"}
    with pytest.raises(KeyError):
        read_pod(other)
