"""The lag of a provider: the time from a pod being ready to the provider showing it."""

from __future__ import annotations

import threading
from time import perf_counter as now
from typing import TYPE_CHECKING

import requests

from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from typing import Self

    from tests.cluster.cluster import Cluster

__all__ = ["WatchLag"]

_POLL_S = 0.05  # what is measured shares the machine with what measures it


class WatchLag:
    """Switch one pod between ready and not ready, and measure when the provider shows it.

    A time counts from when the API server has stored that the pod is ready.

    Args:
        cluster: a control plane.
        pod: path of a function's only pod, whose status is changed only here.
        url: URL at which the provider shows the function.

    Attributes:
        times_s: measured times.
    """

    def __init__(self, cluster: Cluster, pod: str, url: str) -> None:
        self._api = cluster.api
        self._pod = pod
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on)
        self.times_s: list[float] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(HANG_S)

    def quantile(self, share: float) -> float:
        """Return a quantile of the measured times, in seconds."""
        return sorted(self.times_s)[int(share * (len(self.times_s) - 1))]

    def _go_on(self) -> None:
        with requests.Session() as session:
            while not self._over.is_set():
                self._turn(session, ready=False)
                self.times_s.append(self._turn(session, ready=True))

    def _turn(self, session: requests.Session, *, ready: bool) -> float:
        """Change the pod's condition, and return the seconds until it is shown."""
        status = self._api.get(self._pod)["status"]
        for condition in status["conditions"]:
            if condition["type"] in ("Ready", "ContainersReady"):
                condition["status"] = str(ready)
        self._api.patch(f"{self._pod}/status", {"status": status})
        began, pause = now(), threading.Event()

        def shown() -> bool:
            if session.get(self._url, timeout=HANG_S).json()["availableReplicas"] == int(ready):
                return True
            pause.wait(_POLL_S)
            return False

        wait_until(shown, what=f"the pod ready: {ready}")
        return now() - began
