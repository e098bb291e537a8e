"""The sidecars of pods simulated by kwok, which report to a scaler like real ones."""

from __future__ import annotations

import threading
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING

import requests

from carpool.sync import PATH, Announcement, AppReport, FrontReport, InstanceReport, SyncAnswer
from scaler.control.class_function import CLASS_LABEL
from tests.cluster.deployment import ready_pods
from tests.cluster.scaler_process import TOKEN
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from typing import Self

    from carpool.plan import Plan
    from tests.cluster.cluster import Cluster
    from tests.cluster.scaler_process import ScalerProcess

__all__ = ["PlayedSidecars"]

_INTERVAL_S = 0.3
_NOT_YET = (HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE)


class PlayedSidecars:
    """A front that is called at a rate, and an instance in each ready pod of a class.

    Args:
        cluster: cluster with the pods.
        space: namespace of the pods.
        function: name of the function.
        scaler: scaler to which they report.
        rate_rps: arrival rate of the calls.
    """

    def __init__(
        self, cluster: Cluster, space: str, function: str, scaler: ScalerProcess, rate_rps: float
    ) -> None:
        self._cluster, self._space, self._function = cluster, space, function
        self._url, self._arrivals = scaler.url + PATH, round(rate_rps * _INTERVAL_S)
        self._numbers = count(1)
        self._plan: Plan | None = None
        self._revision = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._speak)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(HANG_S)

    def _speak(self) -> None:
        with requests.Session() as session:
            session.headers["authorization"] = f"Bearer {TOKEN}"
            while not self._over.wait(_INTERVAL_S):
                self._say(session)

    def _say(self, session: requests.Session) -> None:
        there = [
            (pod["metadata"], f"{pod['status']['podIP']}:8080")
            for pod in ready_pods(self._cluster, self._space)
            if CLASS_LABEL in pod["metadata"]["labels"]
        ]
        for metadata, address in there:
            sender, name = metadata["uid"].replace("-", ""), metadata["labels"][CLASS_LABEL]
            number = next(self._numbers)
            said = Announcement(self._function, sender, number, name, address, "ready")
            self._post(session, said)
        instances = [
            InstanceReport(address, metadata["labels"][CLASS_LABEL], True, 1, 0.0, item_count=0)  # noqa: FBT003
            for metadata, address in there
        ]
        self._report(session, tuple(instances))

    def _report(self, session: requests.Session, instances: tuple[InstanceReport, ...]) -> None:
        plan = self._plan
        report = FrontReport(
            self._function,
            "front0000",
            next(self._numbers),
            self._revision,
            plan.version if plan else None,
            _INTERVAL_S,
            apps=(AppReport("*", self._arrivals),),
            instances=instances,
            outcomes={"done": self._arrivals},
            term=plan.term if plan else 0,
        )
        if answer := self._post(session, report):
            self._revision = answer.revision
            self._plan = answer.plan or plan

    def _post(
        self, session: requests.Session, said: Announcement | FrontReport
    ) -> SyncAnswer | None:
        """Post a message; return None if the scaler does not know the function yet."""
        got = session.post(self._url, data=said.to_json(), timeout=HANG_S)
        if got.status_code in _NOT_YET:
            return None
        got.raise_for_status()
        return SyncAnswer.from_json(got.content)
