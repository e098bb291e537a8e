"""``carpool scaler run``: puts a scaler together and runs it until SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import tempfile
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from carpool import json_log
from carpool.errors import ConfigError, Problem
from carpool.http.server import Limits as EdgeLimits
from carpool.http.server import serve
from scaler.edge import Edge
from scaler.kubernetes.election import Election
from scaler.leading import check, lead
from scaler.persistence import Term, next_term
from scaler.run_options import add_flags, read_options
from scaler.store import Store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine

    from carpool.http.server import Application, Server
    from scaler.kubernetes.api_server import ApiServer
    from scaler.run_options import ScalerOptions

__all__ = ["add_flags", "run"]

T = TypeVar("T")

log = logging.getLogger(__name__)

_SWITCH_S = 0.0005  # planning runs in a thread, and must not delay responses to sidecars
_LONGEST = 90  # longest path of a folder; that of a socket has at most 107 bytes
_EDGE = EdgeLimits(body_bytes=2**20, connections=20_000, idle_s=150.0)


def run(args: argparse.Namespace) -> int:
    """Run a scaler until it is interrupted.

    Raises:
        ConfigError: Options, a scenario, a policy or a store are invalid.
    """
    for package in ("flask", "gunicorn"):  # their process could only say so again and again
        if find_spec(package) is None:
            fix = "pip install 'carpool[scaler]'"
            raise ConfigError([Problem("Python package", package, "one that is installed", fix)])
    json_log.configure_command("scaler", args, text="scaler: ", level=logging.INFO)
    options = read_options(args)
    check(options)
    store = Store(options.store)
    try:
        store.claim()
        with tempfile.TemporaryDirectory(prefix="web-", dir=_short_folder()) as folder:
            _run(_serve(options, store, Path(folder)))
    finally:
        store.close()
        options.gateway.close()
        if options.cluster:
            options.cluster.close()
        if options.prometheus:
            options.prometheus.close()
    return 0


def _short_folder() -> str:
    """Return a temporary folder in which a socket's path is not too long."""
    usual = tempfile.gettempdir()
    return usual if len(usual) < _LONGEST else "/tmp"  # noqa: S108  a folder of our own within


def _run(serving: Coroutine[None, None, None]) -> None:
    if sys.platform == "win32":
        asyncio.run(serving)
    else:
        import uvloop  # noqa: PLC0415  not everywhere

        uvloop.run(serving)


async def _serve(options: ScalerOptions, store: Store, folder: Path) -> None:
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()  # present objects stay; a full collection with ten thousand sidecars takes long
    gc.set_threshold(50_000, 20, 100)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    edge = Edge()
    servers = [await _listen(edge.all, "--listen", where) for where in options.listen]
    servers += [await _listen(edge.syncs, "--listen-sync", where) for where in options.listen_sync]
    try:
        if options.cluster:
            await _in_turns(options, options.cluster, store, folder, edge, stopped)
        else:
            term = Term(next_term(store, time.time()))
            await lead(options, store, folder, edge, term, stopped.wait())
    finally:
        for server in servers:
            await server.stop()
        edge.close()


async def _in_turns(
    options: ScalerOptions,
    cluster: ApiServer,
    store: Store,
    folder: Path,
    edge: Edge,
    stopped: asyncio.Event,
) -> None:
    """Lead while this scaler holds the Lease, and forward requests to the leader otherwise."""
    election = Election(cluster, options.advertise)
    running = asyncio.get_running_loop().create_task(election.run())
    try:
        while True:
            edge.forward(lambda: election.leader)
            term = await _unless(stopped, election.won())
            if term is None:
                return
            log.info("leading: holds the Lease %s", cluster.lease)
            options.gateway.leads = partial(election.leads, term)
            until = _unless(stopped, election.lost(term))
            await lead(options, store, folder, edge, Term(term, election.term_before), until)
            log.info("no longer leading")
    finally:
        running.cancel()
        await asyncio.wait([running])


async def _unless(stopped: asyncio.Event, awaited: Coroutine[None, None, T]) -> T | None:
    """Return the result of the coroutine; None if the scaler is stopped first."""
    task = asyncio.ensure_future(awaited)
    stop = asyncio.ensure_future(stopped.wait())
    try:
        await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
        return None if stopped.is_set() else task.result()
    finally:
        task.cancel()
        stop.cancel()


async def _listen(app: Application, option: str, listen: str) -> Server:
    try:
        server = await serve(app, listen=listen, limits=_EDGE)
    except OSError as error:
        expected = f"a free address ({error.strerror or error})"
        raise ConfigError([Problem(option, listen, expected)]) from error
    log.info("listening on %s%s", server.address, " for syncs" if option != "--listen" else "")
    return server
