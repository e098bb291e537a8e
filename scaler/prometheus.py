"""Prometheus as a second source of request counts, those of the gateway or the provider.

One query for all functions. It blocks, so an event loop must run it in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import requests

from carpool.direct_session import direct_session
from carpool.errors import CarpoolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler.control.functions import Functions

__all__ = ["QUERY", "Prometheus", "PrometheusCounts", "PrometheusError", "Reading"]

# The counter of OpenFaaS's gateway, or else that of Carpool's provider.
_SOURCES = ("gateway_function_invocation_total", "provider_function_invocations_total")
_COUNTS = " or ".join(f"sum by (function_name) ({name})" for name in _SOURCES)
_TIMES = " or ".join(f"min by (function_name) (timestamp({name}))" for name in _SOURCES)
# One query for both, because a scrape could come between two.
QUERY = " or ".join(
    f'label_replace({what}, "is", "{name}", "", "")'
    for name, what in (("count", _COUNTS), ("time", _TIMES))
)
_TIMEOUT_S = (2.0, 5.0)  # to connect, and between two pieces of the answer
_EVERY_S = 5.0

log = logging.getLogger(__name__)


class PrometheusError(CarpoolError):
    """Prometheus cannot be reached, or its response is invalid."""

    status = 502


class Reading(NamedTuple):
    """The request counter of one function, as scraped by Prometheus.

    Attributes:
        total: Number of requests since the counter started.
        age_s: Age of the scrape, by Prometheus's own clock.
    """

    total: int
    age_s: float


class Prometheus:
    """A client of a Prometheus server.

    Args:
        url: Its URL, such as ``http://127.0.0.1:9090``.
        namespace: Namespace of the functions; any if empty.
    """

    def __init__(self, url: str, namespace: str = "") -> None:
        self._url = url.rstrip("/")
        self._namespace = namespace
        self._session = direct_session()

    def readings(self) -> dict[str, Reading]:
        """Return the request counter of each function that has one.

        Raises:
            PrometheusError: Prometheus cannot be queried.
        """
        try:
            answer = self._session.get(
                f"{self._url}/api/v1/query", params={"query": QUERY}, timeout=_TIMEOUT_S
            )
            answer.raise_for_status()
            return self._read(answer.json()["data"]["result"])
        except requests.RequestException as error:
            message = f"Prometheus at {self._url} cannot be queried: {error}"
            raise PrometheusError(message) from error
        except (
            ValueError,
            KeyError,
            TypeError,
            IndexError,
            AttributeError,
            OverflowError,
        ) as error:
            message = f"Prometheus at {self._url} returned an unexpected response: {error!r}"
            raise PrometheusError(message) from error

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _read(self, result: Iterable[dict[str, Any]]) -> dict[str, Reading]:
        totals: Counter[str] = Counter()
        ages_s: dict[str, float] = {}
        for series in result:
            labels, (asked_s, value) = series["metric"], series["value"]
            name, _, namespace = labels.get("function_name", "").partition(".")
            if self._namespace and namespace and namespace != self._namespace:
                continue
            if labels["is"] == "count":
                totals[name] += int(float(value))
            else:
                age_s = max(0.0, float(asked_s) - float(value))
                ages_s[name] = max(age_s, ages_s.get(name, 0.0))
        return {name: Reading(total, ages_s[name]) for name, total in totals.items()}


class PrometheusCounts:
    """Periodically compares the counts of Prometheus with those of the sidecars.

    If it cannot be queried, that is logged once and changes nothing: sidecars are the primary
    source.

    Args:
        prometheus: The source of counts.
        functions: Receive the counts.
    """

    def __init__(self, prometheus: Prometheus, functions: Functions) -> None:
        self._prometheus = prometheus
        self._functions = functions

    async def run(self) -> None:
        """Query until cancelled."""
        while True:
            try:
                readings = await asyncio.to_thread(self._prometheus.readings)
            except PrometheusError as error:
                if "prometheus" not in self._functions.troubles:
                    log.warning("%s; only sidecars count requests", error)
                self._functions.troubles["prometheus"] = str(error)
            else:
                self._functions.troubles.pop("prometheus", None)
                now_s = self._functions.now()
                for controller in self._functions:
                    total, age_s = readings.get(controller.name, (None, 0.0))
                    controller.recounted("Prometheus", total, now_s, age_s)
            await asyncio.sleep(_EVERY_S)
