"""Polls Prometheus for request counts, for comparison with those of the sidecars.

If it cannot be queried, that is logged once and changes nothing: sidecars are the primary source.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from scaler.prometheus import PrometheusError

if TYPE_CHECKING:
    from scaler.control.functions import Functions
    from scaler.prometheus import Prometheus

__all__ = ["PrometheusCounts"]

log = logging.getLogger(__name__)

_EVERY_S = 5.0


class PrometheusCounts:
    """Periodically compares the counts of Prometheus with those of the sidecars.

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
