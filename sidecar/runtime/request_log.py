"""Logs a line for each request, or for each that failed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

from carpool.json_log import fields

if TYPE_CHECKING:
    from sidecar.core.batch import Batch
    from sidecar.core.request import Request

__all__ = ["RequestLog"]

log = logging.getLogger(__name__)

_FAILED_FROM = 500


class RequestLog:
    """Logs how requests end.

    Args:
        all_requests: whether to log successful requests, too.
    """

    def __init__(self, *, all_requests: bool) -> None:
        self._lowest = 0 if all_requests else _FAILED_FROM

    @classmethod
    def of(cls, which: str) -> Self | None:
        """Return the log of ``all`` requests, or of ``failed`` ones; None if it is ``off``."""
        return None if which == "off" else cls(all_requests=which == "all")

    def ended(
        self,
        request: Request,
        outcome: str,
        status: int | None,
        now: float,
        batch: Batch | None = None,
    ) -> None:
        """Log the end of a request, unless it is left out.

        Args:
            request: the request.
            outcome: as in ``batch_outcomes_total``.
            status: status of its response; None if its caller has left.
            now: monotonic seconds.
            batch: the batch in which it was answered; None without one.
        """
        if status is not None and status < self._lowest:
            return
        payload = request.payload
        path = payload.exchange.target.partition("?")[0]
        about: dict[str, object] = {"call_id": payload.call_id, "method": payload.exchange.method}
        about |= {"path": path, "app": request.app, "outcome": outcome, "status": status}
        about["seconds"] = round(now - request.arrived + payload.spent_s, 6)
        if batch:
            about["wait_s"] = round(batch.sent - request.arrived, 6)
            about |= {"exec_s": round(batch.exec_s, 6), "batch": len(batch.requests)}
            about["instance"] = batch.upstream.name
        log.info("request", extra=fields(**about))
