"""A scaled function on a real node, under load, through all kinds of failures."""

from __future__ import annotations

import json
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import requests

from tests.cluster import classify
from tests.cluster.scaled_stage import APPS, LONG_S, NAME, headers_of, load, stage
from tests.faas_stack.test_up import carpool
from tests.live.stack import ARGUMENTS
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.cluster.cluster import Cluster
    from tests.cluster.scaled_stage import Stage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(6 * LONG_S)]
ROWS = [(0.5 * number, 1.0, -number / 3, 0.25) for number in range(8)]


@pytest.fixture(scope="module")
def running(
    cluster: Cluster,
    classify_image: None,  # noqa: ARG001 - the node must have it
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    """The function with two fronts, and all instances of the three classes planned by a policy."""
    with stage(cluster, tmp_path_factory.mktemp("scaled")) as made:
        made.system("POST", f"/system/scale-function/{NAME}", {"replicas": 2})
        with load(made.url):
            made.settle()
        wait_until(lambda: len(made.plans()) == 2, LONG_S, what="two fronts")
        yield made


def answers(url: str, headers: Mapping[str, str]) -> list[list[float]]:
    """Return the exact results for `ROWS`."""
    found = []
    for row in ROWS:
        document, where = classify.request(row), f"{url}/{classify.INFER}"
        got = requests.post(where, json=document, headers=headers, timeout=HANG_S)
        assert got.ok, got.text
        found.append(got.json()["outputs"][0]["data"])
    return found


def test_classes_return_same_results_as_process_backend(running: Stage, tmp_path: Path) -> None:
    """Each application has its own class, and gets the same numbers as on one machine."""
    with load(running.url) as calls:
        classes = running.settle()
        calls.go_on()
        by_app = {app: answers(running.url, headers_of(app)) for app in APPS}
        batches = running.explain()["batches"]
    assert [] == calls.bad
    assert classes.keys() <= {name for name, count in batches.items() if count}
    classify.write_stack(tmp_path)
    with carpool(tmp_path, *ARGUMENTS, "--port", "0") as up:
        alone = answers(f"{up.result()['url']}/function/{NAME}", {})
    assert dict.fromkeys(APPS, alone) == by_app


def test_no_call_fails_while_the_function_is_updated_and_scaled(
    running: Stage, figure: Callable[[str], None]
) -> None:
    """No call fails while front and classes are updated, then scaled out and in by an instance."""
    with load(running.url) as calls:
        running.settle()
        running.deploy(version=2)
        wait_until(lambda: versions(running) == {"2"}, LONG_S, what="pods of the new version")
        calls.go_on()
        more = sum(running.settle().values()) + 1
        running.deploy(version=2, least=more)
        wait_until(lambda: sum(running.settle().values()) >= more, LONG_S, what="one more instance")
        calls.go_on()
        running.deploy(version=2)
        wait_until(lambda: sum(running.settle().values()) < more, LONG_S, what="one less again")
        calls.go_on()
    assert [] == calls.bad
    figure(f"{calls.good} calls of three classes through an update, a scale-out and a scale-in")


def names(running: Stage) -> list[str]:
    """Return the names of all ready pods."""
    return [pod["metadata"]["name"] for pod in running.pods()]


def versions(running: Stage) -> set[str]:
    """Return the versions of the function that the existing pods have."""
    path = f"/api/v1/namespaces/{running.space}/pods"
    pods = running.cluster.api.get(path)["items"]
    variables = [each for pod in pods for each in pod["spec"]["containers"][0]["env"]]
    return {each["value"] for each in variables if each["name"] == "version"}


def test_no_call_fails_while_pods_are_killed(running: Stage, figure: Callable[[str], None]) -> None:
    """No call fails while an instance of each class is killed and a front is deleted gracefully."""
    with load(running.url) as calls:
        for name in running.settle():
            running.kill(running.instance(name))
            calls.go_on()
        front = running.pods(NAME)[0]["metadata"]["name"]
        running.cluster.api.delete(f"/api/v1/namespaces/{running.space}/pods/{front}")
        wait_until(lambda: front not in running.plans() and len(running.plans()) == 2, LONG_S)
        running.settle()
        calls.go_on()
    assert [] == calls.bad
    figure(f"{calls.good} calls of three classes while an instance of each was killed, and a front")


@pytest.mark.parametrize("part", ["kubelet", "kube-apiserver", "etcd"])
def test_no_call_fails_while_a_part_of_the_cluster_restarts(
    running: Stage, part: str, figure: Callable[[str], None]
) -> None:
    """After a part of the cluster was killed and restarted, a killed instance is still replaced."""
    with load(running.url) as calls:
        running.settle()
        running.cluster.restart(part)
        calls.go_on()
        (name, *_) = running.settle()
        victim = running.instance(name)
        running.kill(victim)
        wait_until(lambda: victim["metadata"]["name"] not in names(running), LONG_S, what="its end")
        running.settle()
        calls.go_on()
    assert [] == calls.bad
    figure(f"{calls.good} calls of three classes while {part} was killed and started again")


class Seen:
    """The plans that fronts were seen to follow.

    Attributes:
        plans: all plans, by term and version.
        followed: term and version by front, in order of time.
    """

    def __init__(self) -> None:
        self.plans: dict[tuple[int, int], set[str]] = {}
        self.followed: dict[str, list[tuple[int, int]]] = {}

    def look(self, running: Stage) -> None:
        """Record the plans of all fronts."""
        for front, plan in running.plans().items():
            number = (plan["term"], plan["version"])
            self.plans.setdefault(number, set()).add(json.dumps(plan, sort_keys=True))
            self.followed.setdefault(front, []).append(number)

    def check(self) -> None:
        """Assert that no front went back, and no two plans had the same number."""
        assert all(sorted(numbers) == numbers for numbers in self.followed.values()), self.followed
        assert all(len(plans) == 1 for plans in self.plans.values())


@contextmanager
def watched(running: Stage) -> Iterator[Seen]:
    """Record continuously which plan the fronts follow, and check the record at the end."""
    seen, over = Seen(), threading.Event()

    def look() -> None:
        while not over.wait(0.05):
            seen.look(running)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        over.set()
        looking.join()
    seen.check()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_new_leader_plans_in_a_later_term(
    running: Stage, number: signal.Signals, figure: Callable[[str], None]
) -> None:
    """Another scaler becomes the leader, with plans of a later term."""
    with load(running.url) as calls, watched(running) as seen:
        wait_until(lambda: len(seen.followed) == 2, LONG_S, what="the plans of both fronts")
        first, before = running.leader(), max(list(seen.plans))[0]
        began = time.monotonic()
        first.running.send_signal(number)
        wait_until(lambda: running.leader() is not first, LONG_S, what="another leader")
        led_s = time.monotonic() - began
        wait_until(lambda: follows_later(seen, before), LONG_S, what="its plan at both fronts")
        followed_s = time.monotonic() - began
        if number == signal.SIGKILL:
            running.scalers.remove(first)
            running.start_scaler()
        else:
            first.running.send_signal(signal.SIGCONT)
            wait_until(
                lambda: "no longer leading" in first.log(), LONG_S, what="the first gives up"
            )
        running.settle()
        calls.go_on()
    assert [] == calls.bad
    figure(
        f"scalers: {number.name} of the leader under load: another led after {led_s:.1f} s, both "
        f"fronts followed its plan after {followed_s:.1f} s; {calls.good} calls"
    )


def follows_later(seen: Seen, term: int) -> bool:
    """Return whether both fronts follow a plan of a later term."""
    latest = [numbers[-1][0] for numbers in list(seen.followed.values())]
    return len(latest) == 2 and min(latest) > term


def test_killed_provider_loses_only_its_calls_in_flight(
    running: Stage, figure: Callable[[str], None]
) -> None:
    """Each caller loses at most the one call that the killed provider had in flight."""
    with load(running.url) as calls:
        running.settle()
        running.start_provider()
        running.retire_provider(running.providers[0], signal.SIGKILL)
        calls.go_on(despite=calls.count)
    assert len(calls.bad) <= calls.count
    assert all(each.startswith("ConnectionError") for each in calls.bad), calls.bad
    figure(f"provider killed: {len(calls.bad)} of {calls.good + len(calls.bad)} calls broke off")


def test_no_call_fails_while_the_providers_are_updated(
    running: Stage, figure: Callable[[str], None]
) -> None:
    """No call fails if each new provider is added before an old one is terminated."""
    with load(running.url) as calls:
        for old in list(running.providers):
            running.start_provider()
            calls.go_on()
            running.retire_provider(old, signal.SIGTERM)
            calls.go_on()
        running.settle()
    assert [] == calls.bad
    figure(f"{calls.good} calls of three classes while both providers were replaced")
