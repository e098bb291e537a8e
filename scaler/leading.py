"""A scaler while it leads: connects its parts, from the first round to the last.

A single scaler leads throughout. Of several on a cluster one leads, and each of the others may
later, with new parts: it learns what it needs to know from the sidecars and the gateway.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from scaler.api import Api
from scaler.control.functions import Functions
from scaler.control.message_order import MessageOrder
from scaler.control.sync_pace import Pace
from scaler.dashboard.sampler import Sampler
from scaler.kubernetes.cluster_nodes import ClusterNodes
from scaler.live_planner import Planner
from scaler.loop import Loop
from scaler.metrics import Metrics
from scaler.persistence import Persistence
from scaler.prometheus import PrometheusCounts
from scaler.sync_api import SyncApi
from scaler.web.documents import Documents
from scaler.web.publisher import Publisher
from scaler.web.server import Readers, WebProcess, socket_of
from scaler.web.snapshot import SnapshotFile

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path

    from scaler.edge import Edge
    from scaler.persistence import Term
    from scaler.run_options import ScalerOptions
    from scaler.store import Store

__all__ = ["check", "lead"]


def check(options: ScalerOptions) -> None:
    """Refuse policies that cannot be constructed, before the scaler announces its address.

    Raises:
        ConfigError: There is no such policy, or it refuses its parameters.
    """
    Planner(options.setting, options.shadow, term=0)


async def lead(
    options: ScalerOptions,
    store: Store,
    folder: Path,
    edge: Edge,
    term: Term,
    until: Awaitable[object],
) -> None:
    """Plan, and answer requests, until told to end.

    Args:
        options: Options from the flags.
        store: Store of the state.
        folder: Empty folder of this run.
        edge: Listeners for requests.
        term: Term of the plans, and the one before.
        until: Leading ends when this does.
    """
    functions = Functions(
        replace(options.dependencies, term=term.number),
        Pace(options.sync_s),
        now=time.monotonic,
        wall=time.time,
    )
    metrics = Metrics(lambda: list(functions), functions.now)
    senders = MessageOrder()
    planner = Planner(options.setting, options.shadow, term.number)
    persistence = Persistence(store, functions, senders, term.before)
    loop = Loop(functions, options.gateway, planner, persistence, metrics)
    loop.lists = options.lists
    sync = SyncApi(functions, options.callers, metrics, senders)
    sampler = Sampler(functions, planner, options.setting.prices)
    counts = PrometheusCounts(options.prometheus, functions) if options.prometheus else None
    nodes = ClusterNodes(options.cluster, planner) if options.cluster else None
    documents = Documents(functions, planner, loop)
    publisher = Publisher(functions, documents, sampler, metrics, SnapshotFile(folder))
    web, readers = WebProcess(folder), Readers(socket_of(folder), publisher)
    edge.serve(Api(sync, readers), sync)
    await web.start()
    if nodes:
        await nodes.look()
    rounds = asyncio.get_running_loop().create_task(loop.run(options.interval_s))
    besides = [asyncio.ensure_future(each.run()) for each in (sampler, counts, nodes) if each]
    end = asyncio.ensure_future(until)
    try:
        await asyncio.wait([rounds, end], return_when=asyncio.FIRST_COMPLETED)
        rounds.cancel()
        await asyncio.wait([rounds])
    finally:
        for each in (*besides, end):
            each.cancel()
        await web.stop()
        readers.close()
    if not rounds.cancelled() and (error := rounds.exception()):
        raise error
