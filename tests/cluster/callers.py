"""Callers of a function that run until they are stopped, and record their results."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import requests

from tests.cluster import classify
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

__all__ = ["Callers"]


class Callers:
    """Threads that call ``classify`` one call after another, each with its own row.

    Args:
        url: URL of the function.
        headers: headers of each call.
        pause_s: seconds between a response and the next call.

    Attributes:
        count: number of threads.
        good: number of calls answered with the model's result for their row.
        bad: all other results.
    """

    def __init__(
        self,
        url: str,
        count: int = 4,
        headers: Mapping[str, str] | None = None,
        pause_s: float = 0.0,
    ) -> None:
        self._url = f"{url}/{classify.INFER}"
        self._headers = headers
        self._pause_s = pause_s
        self.count = count
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._go_on, args=(n,)) for n in range(count)]
        self.good = 0
        self.bad: list[str] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(HANG_S)

    def go_on(self, calls: int = 50, despite: int = 0) -> None:
        """Wait for ``calls`` more good results, or for more than ``despite`` bad ones in all."""
        wanted = self.good + calls
        wait_until(lambda: self.good >= wanted or len(self.bad) > despite, what=f"{calls} answers")

    def _go_on(self, number: int) -> None:
        row = (float(number), 1.0, 0.5, -0.25)
        expected = classify.expected(row)
        with requests.Session() as session:
            while not self._over.wait(self._pause_s):
                self._call(session, row, expected)

    def _call(
        self, session: requests.Session, row: tuple[float, ...], expected: list[float]
    ) -> None:
        document = classify.request(row)
        try:
            got = session.post(self._url, json=document, headers=self._headers, timeout=HANG_S)
        except requests.RequestException as error:
            self.bad.append(repr(error))
            return
        if not got.ok:
            self.bad.append(f"{got.status_code} {got.text}")
            return
        answer: list[float] = got.json()["outputs"][0]["data"]
        if all(abs(a - b) < 1e-5 for a, b in zip(answer, expected, strict=True)):
            self.good += 1
        else:
            self.bad.append(f"{row}: {answer}, expected {expected}")
