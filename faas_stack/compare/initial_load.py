"""Load of constant rates, for as long as it takes until a trace can begin.

However late responses are, the rates stay the same. A scaling policy would see a pause as a fall.
"""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from faas_stack.load.generator import LoadGenerator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from faas_stack.load.generator import Target
    from faas_stack.load.results import LoadResults

__all__ = ["initial_load"]


@asynccontextmanager
async def initial_load(
    parts: Sequence[tuple[float, Target, LoadResults]],
) -> AsyncIterator[asyncio.Future[Any]]:
    """Send evenly spaced requests; at the end, wait for the last responses.

    Args:
        parts: Rates in requests per second, each with its target and results.

    Yields:
        The running load; it has an error if a target cannot be reached.
    """
    over = asyncio.Event()
    load = asyncio.gather(
        *(
            LoadGenerator(target, _until(over, rate_rps), results).run()
            for rate_rps, target, results in parts
        )
    )
    try:
        yield load
        over.set()
        await load
    finally:
        load.cancel()
        await asyncio.wait([load])
        if not load.cancelled():
            load.exception()  # retrieved, as Ctrl-C cancels its parts as well


def _until(over: asyncio.Event, rate_rps: float) -> Iterator[float]:
    """Return evenly spaced due times until the event."""
    times = (number / rate_rps for number in itertools.count()) if rate_rps else ()
    return itertools.takewhile(lambda _: not over.is_set(), times)
