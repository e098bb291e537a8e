"""Prometheus as a second count of requests: what OpenFaaS's gateway has told it.

One query for all functions. It blocks; whoever has an event loop makes it in a thread.
"""

from __future__ import annotations

from collections import Counter

import requests

from carpool.errors import CarpoolError

__all__ = ["QUERY", "Prometheus", "PrometheusError"]

QUERY = "sum by (function_name) (gateway_function_invocation_total)"
_TIMEOUT_S = (2.0, 5.0)  # to connect, and between two pieces of the answer


class PrometheusError(CarpoolError):
    """It cannot be reached, or its answer is none."""

    status = 502
    retryable = True


class Prometheus:
    """One at an address.

    Args:
        url: Such as ``http://127.0.0.1:9090``.
        namespace: Of the functions; empty: any.
    """

    def __init__(self, url: str, namespace: str = "") -> None:
        self._url = url.rstrip("/")
        self._namespace = namespace
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy for the outside is none for it

    def counts(self) -> Counter[str]:
        """How many requests each function has had, since whoever counts them has started.

        Raises:
            PrometheusError: it cannot be asked.
        """
        try:
            answer = self._session.get(
                f"{self._url}/api/v1/query", params={"query": QUERY}, timeout=_TIMEOUT_S
            )
            answer.raise_for_status()
            found: Counter[str] = Counter()
            for series in answer.json()["data"]["result"]:
                name, _, namespace = series["metric"].get("function_name", "").partition(".")
                if not (self._namespace and namespace) or namespace == self._namespace:
                    found[name] += int(float(series["value"][1]))
        except requests.RequestException as error:
            message = f"Prometheus at {self._url} cannot be asked: {error}"
            raise PrometheusError(message) from error
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            message = f"Prometheus at {self._url} does not answer as expected: {error!r}"
            raise PrometheusError(message) from error
        return found

    def close(self) -> None:
        """Close the connections."""
        self._session.close()
