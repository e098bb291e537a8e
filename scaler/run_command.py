"""``carpool scaler run``: puts a scaler together and runs it until SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import tempfile
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem
from carpool.http.server import Limits as EdgeLimits
from carpool.http.server import serve
from scaler.api import Api
from scaler.control.message_order import MessageOrder
from scaler.control.sync_pace import Pace
from scaler.dashboard.sampler import Sampler
from scaler.functions import Functions
from scaler.live_planner import Planner
from scaler.loop import Loop
from scaler.metrics import Tally
from scaler.persistence import Keeping, next_term
from scaler.run_options import add_flags, read_options
from scaler.second_source import SecondSource
from scaler.store import Store
from scaler.sync_api import SyncApi
from scaler.web.documents import Documents
from scaler.web.publisher import Publisher
from scaler.web.server import Readers, WebProcess, socket_of
from scaler.web.snapshot import Snapshot

if TYPE_CHECKING:
    import argparse
    from collections.abc import Coroutine

    from carpool.http.server import Application, Server
    from scaler.run_options import Options

__all__ = ["add_flags", "run"]

log = logging.getLogger(__name__)

_SWITCH_S = 0.0005  # planning, in a thread, must not keep sidecars waiting for their answers
_LONGEST = 90  # of a folder; the path of a socket has at most 107 bytes
_EDGE = EdgeLimits(body_bytes=2**20, connections=20_000, idle_s=150.0)


def run(args: argparse.Namespace) -> int:
    """Run a scaler until it is interrupted.

    Raises:
        ConfigError: options, a scenario, a policy or a store that cannot be used.
    """
    for package in ("flask", "gunicorn"):  # their process could only say so again and again
        if find_spec(package) is None:
            fix = "pip install 'carpool[scaler]'"
            raise ConfigError([Problem("Python package", package, "one that is installed", fix)])
    logging.basicConfig(level=logging.INFO, format="scaler: %(message)s", stream=sys.stderr)
    options = read_options(args)
    store = Store(options.store)
    try:
        store.claim()
        with tempfile.TemporaryDirectory(prefix="web-", dir=_short_folder()) as folder:
            _run(_serve(options, store, Path(folder)))
    finally:
        store.close()
        options.gateway.close()
        if options.prometheus:
            options.prometheus.close()
    return 0


def _short_folder() -> str:
    """Where a socket's path is not too long."""
    usual = tempfile.gettempdir()
    return usual if len(usual) < _LONGEST else "/tmp"  # noqa: S108  a folder of our own within


def _run(serving: Coroutine[None, None, None]) -> None:
    if sys.platform == "win32":
        asyncio.run(serving)
    else:
        import uvloop  # noqa: PLC0415  not everywhere

        uvloop.run(serving)


async def _serve(options: Options, store: Store, folder: Path) -> None:
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()  # what is here now stays; a look at all that ten thousand sidecars hold is rare
    gc.set_threshold(50_000, 20, 100)
    term = next_term(store, time.time())
    functions = Functions(replace(options.dependencies, term=term), Pace(options.sync_s))
    tally = Tally(lambda: list(functions), functions.now)
    senders = MessageOrder()
    planner = Planner(options.setting, options.shadow, term)
    keeping = Keeping(store, functions, senders)
    loop = Loop(functions, options.gateway, planner, keeping, tally)
    loop.lists = options.lists
    sync = SyncApi(functions, options.callers, tally, senders)
    sampler = Sampler(functions, planner, options.setting.prices)
    source = SecondSource(options.prometheus, functions) if options.prometheus else None
    documents = Documents(functions, planner, loop)
    publisher = Publisher(functions, documents, sampler, tally, Snapshot(folder))
    web, readers = WebProcess(folder), Readers(socket_of(folder), publisher)
    api = Api(sync, readers)
    servers = [await _listen(api, "--listen", where) for where in options.listen]
    servers += [await _listen(sync, "--listen-sync", where) for where in options.listen_sync]
    await web.start()
    rounds = asyncio.get_running_loop().create_task(loop.run(options.interval_s))
    besides = [asyncio.ensure_future(each.run()) for each in (sampler, source) if each]
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, rounds.cancel)
    try:
        await asyncio.wait([rounds])
    finally:
        await web.stop()
    for beside in besides:
        beside.cancel()
    for server in servers:
        await server.stop()
    readers.close()
    if not rounds.cancelled() and (error := rounds.exception()):
        raise error


async def _listen(app: Application, option: str, listen: str) -> Server:
    try:
        server = await serve(app, listen=listen, limits=_EDGE)
    except OSError as error:
        expected = f"a free address ({error.strerror or error})"
        raise ConfigError([Problem(option, listen, expected)]) from error
    log.info("listening on %s%s", server.address, " for syncs" if option != "--listen" else "")
    return server
