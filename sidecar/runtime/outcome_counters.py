"""How requests ended, by application: how long they took, and whether they met their objective.

A request's time is from the gateway's stamp, if there is one, to its response: the time that its
caller has waited, without the network. Applications are those of the function's settings; a request
that names another one, or none, counts as ``*``, so that callers cannot create series. Background
requests have no objective, and are counted separately from all applications.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from carpool.prometheus_text import Histogram, counter, gauge, histogram

if TYPE_CHECKING:
    from collections.abc import Iterator

    from carpool.prometheus_text import Family
    from carpool.settings import FunctionSettings
    from sidecar.core.request import Request

__all__ = ["OTHERS", "OutcomeCounters"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_NAMES = ("in_time", "late", "failed", "expired", "refused", "cancelled")
OTHERS = "*"  # requests of no application of the settings


class _Application:
    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = dict.fromkeys(_NAMES, 0)
        self.seconds = Histogram(_SECONDS)


class OutcomeCounters:
    """Counts the requests of a function by outcome.

    Args:
        settings: settings of the function; None if it has no applications and objectives.
    """

    def __init__(self, settings: FunctionSettings | None) -> None:
        self._objectives_s = dict[str, float | None]()
        self._share = None
        if settings:
            self._objectives_s = {
                OTHERS: settings.slo_s,
                **{a.name: a.slo_s for a in settings.apps},
            }
            self._share = settings.percentile
        self._apps = {name: _Application() for name in (OTHERS, *self._objectives_s)}
        self._background = _Application()

    def answered(self, request: Request, now: float, *, failed: bool) -> str:
        """Count ``request``, which the handler answered; return its outcome.

        It counts as failed if ``failed``: the handler answered with an error of its own.
        """
        app = self._of(request.app, background=request.background)
        app.seconds.observe(now - request.arrived + request.payload.spent_s)
        outcome = "failed" if failed else "late" if now > request.due else "in_time"
        app.counts[outcome] += 1
        return outcome

    def ended(self, app: str, outcome: str, *, background: bool = False) -> None:
        """Count a request of the application that ended without a response from the handler."""
        self._of(app, background=background).counts[outcome] += 1

    def refused(self, app: str, count: int) -> None:
        """Count refused requests of the application."""
        self._of(app, background=False).counts["refused"] += count

    def collect(self) -> Iterator[Family]:
        """Yield the metric families."""
        apps, background = self._apps, self._background
        text = "Time from the gateway's time stamp, or else arrival, to the handler's response"
        seconds = {name: app.seconds for name, app in apps.items()}
        yield histogram("batch_request_seconds", text, seconds, "app")
        text = "Requests by application and outcome"
        counts = {(name, how): n for name, app in apps.items() for how, n in app.counts.items()}
        yield counter("batch_outcomes", text, counts, "app", "outcome")
        text = "Like batch_request_seconds, for background requests"
        yield histogram("batch_background_seconds", text, background.seconds)
        text = "Background requests by outcome"
        yield counter("batch_background_outcomes", text, background.counts, "outcome")
        yield from self._objectives()

    def _objectives(self) -> Iterator[Family]:
        objectives_s = {name: s for name, s in self._objectives_s.items() if s is not None}
        text = "Latency objective by application"
        yield gauge("batch_objective_seconds", text, objectives_s, "app")
        share = {} if self._share is None else {(): self._share}
        yield gauge(
            "batch_objective_ratio", "Share of requests that must meet the objective", share
        )

    def _of(self, name: str, *, background: bool) -> _Application:
        if background:
            return self._background
        return self._apps.get(name) or self._apps[OTHERS]
