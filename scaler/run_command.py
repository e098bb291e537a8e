"""``carpool scaler run``: puts a scaler together and runs it until SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from typing import TYPE_CHECKING

from carpool.errors import ConfigError, Problem
from carpool.http.server import Limits as EdgeLimits
from carpool.http.server import serve
from scaler.api import Api
from scaler.control.message_order import MessageOrder
from scaler.control.sync_pace import Pace
from scaler.dashboard.watch import Dashboard
from scaler.functions import Functions
from scaler.loop import Loop
from scaler.metrics import Tally
from scaler.persistence import Keeping
from scaler.planners import Planners
from scaler.run_options import add_flags, read_options
from scaler.second_source import SecondSource
from scaler.store import Store
from scaler.sync_api import SyncApi

if TYPE_CHECKING:
    import argparse

    from carpool.http.server import Application, Server
    from scaler.run_options import Options

__all__ = ["add_flags", "run"]

log = logging.getLogger(__name__)

_SWITCH_S = 0.0005  # planning, in a thread, must not keep sidecars waiting for their answers
_EDGE = EdgeLimits(body_bytes=2**20, connections=20_000, idle_s=150.0)


def run(args: argparse.Namespace) -> int:
    """Run a scaler until it is interrupted.

    Raises:
        ConfigError: options, a scenario, a policy or a store that cannot be used.
    """
    logging.basicConfig(level=logging.INFO, format="scaler: %(message)s", stream=sys.stderr)
    options = read_options(args)
    store = Store(options.store)
    try:
        store.claim()
        if sys.platform == "win32":
            asyncio.run(_serve(options, store))
        else:
            import uvloop  # noqa: PLC0415  not everywhere

            uvloop.run(_serve(options, store))
    finally:
        store.close()
        options.gateway.close()
        if options.prometheus:
            options.prometheus.close()
    return 0


async def _serve(options: Options, store: Store) -> None:
    sys.setswitchinterval(_SWITCH_S)
    gc.freeze()  # what is here now stays; a look at all that ten thousand sidecars hold is rare
    gc.set_threshold(50_000, 20, 100)
    functions = Functions(options.means, Pace(options.sync_s))
    tally = Tally(lambda: list(functions), functions.now)
    senders = MessageOrder()
    planners = Planners(options.setting, options.shadow)
    keeping = Keeping(store, functions, senders)
    loop = Loop(functions, options.gateway, planners, keeping, tally)
    loop.lists = options.lists
    sync = SyncApi(functions, options.callers, tally, senders)
    dashboard = Dashboard(functions, planners, options.setting.prices)
    source = SecondSource(options.prometheus, functions) if options.prometheus else None
    api = Api(sync, functions, planners, loop, tally, dashboard)
    servers = [await _listen(api, "--listen", where) for where in options.listen]
    servers += [await _listen(sync, "--listen-sync", where) for where in options.listen_sync]
    rounds = asyncio.get_running_loop().create_task(loop.run(options.interval_s))
    besides = [asyncio.ensure_future(each.run()) for each in (dashboard, source) if each]
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, rounds.cancel)
    await asyncio.wait([rounds])
    for beside in besides:
        beside.cancel()
    for server in servers:
        await server.stop()
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
