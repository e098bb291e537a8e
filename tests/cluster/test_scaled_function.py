"""A scaled function on a real node, under load, while whatever may fail does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import requests

from tests.cluster import classify
from tests.cluster.scaled_stage import APPS, NAME, headers_of, load, stage
from tests.faas_stack.test_up import carpool
from tests.live.stack import ARGUMENTS
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.cluster.cluster import Cluster
    from tests.cluster.scaled_stage import Stage

pytestmark = pytest.mark.slow
ROWS = [(0.5 * number, 1.0, -number / 3, 0.25) for number in range(8)]


@pytest.fixture(scope="module")
def running(
    cluster: Cluster,
    classify_image: None,  # noqa: ARG001 - the node must have it
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Stage]:
    """The function with two fronts, and all of three classes that a policy has planned."""
    with stage(cluster, tmp_path_factory.mktemp("scaled")) as made:
        made.system("POST", f"/system/scale-function/{NAME}", {"replicas": 2})
        with load(made.url):
            made.settle()
        wait_until(lambda: len(made.plans()) == 2, what="two fronts")
        yield made


def answers(url: str, headers: Mapping[str, str]) -> list[list[float]]:
    """What `ROWS` get, to the last digit."""
    found = []
    for row in ROWS:
        document, where = classify.request(row), f"{url}/{classify.INFER}"
        got = requests.post(where, json=document, headers=headers, timeout=HANG_S)
        assert got.ok, got.text
        found.append(got.json()["outputs"][0]["data"])
    return found


def test_three_classes_answer_as_the_process_backend_does(running: Stage, tmp_path: Path) -> None:
    """Each application has a class of its own, and gets the same numbers as on one machine."""
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


def test_no_call_fails_while_pods_are_killed(running: Stage, figure: Callable[[str], None]) -> None:
    """An instance of each class without a warning, with the batch it has; and a front in order."""
    with load(running.url) as calls:
        for name in running.settle():
            running.kill(running.instance(name))
            calls.go_on()
        front = running.pods(NAME)[0]["metadata"]["name"]
        running.cluster.api.delete(f"/api/v1/namespaces/{running.space}/pods/{front}")
        wait_until(lambda: front not in running.plans() and len(running.plans()) == 2)
        running.settle()
        calls.go_on()
    assert [] == calls.bad
    figure(f"{calls.good} calls of three classes while an instance of each was killed, and a front")
