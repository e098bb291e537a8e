"""The process ``python -m watchdog_plugin``: serves a function, or with ``--check`` checks it.

Wires settings, server, batch runner and lifecycle together. Listens before it loads, so that
requests in the meantime get a 503 instead of a refused connection. Every fatal error ends the
process with one message and a non-zero exit code: of-watchdog would keep reporting a function that
exits with 0 as "healthy".
"""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import TYPE_CHECKING

from carpool import address, memory, wire
from carpool.errors import CarpoolError
from carpool.process import ready_notice
from watchdog_plugin import json_codec, loading, logs
from watchdog_plugin.batch_runner import BatchRunner, Concurrent, ModelLock, ModelThread
from watchdog_plugin.lifecycle import Lifecycle
from watchdog_plugin.reader import ReadLimits
from watchdog_plugin.server import Server
from watchdog_plugin.service import Service
from watchdog_plugin.settings import HandlerSettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from watchdog_plugin.loading import Loaded

__all__ = ["main"]

# A decoded batch runs while the responses of the previous one are still being written. Its thread
# needs the interpreter first, but Python would leave it to the other thread for up to 5 ms.
_SWITCH_S = 0.0001


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Serve until the process is terminated, or check and exit."""
    check = _asks_for_check(sys.argv[1:] if argv is None else argv)
    logs.protect_streams()
    gc.freeze()  # what was imported stays, so collections while the function loads can skip it
    gc.enable()
    code = 1
    try:
        settings = HandlerSettings.from_env(os.environ)
        code = _check(settings) if check else _serve(settings)
    except CarpoolError as error:
        logs.say(f"cannot start: {error}")
        code = error.exit_code
    except BaseException as error:  # noqa: BLE001  the process must not end with 0, nor mutely
        logs.say_failure("starting", error)
    sys.stdout.flush()
    os._exit(code)  # threads the author's code has started must not keep a dead function alive


def _asks_for_check(argv: Sequence[str]) -> bool:
    """Return whether the command line contains ``--check``."""
    if not argv:
        return False
    import argparse  # noqa: PLC0415 - a function's process has no arguments, and is to start soon

    parser = argparse.ArgumentParser(
        prog="python -m watchdog_plugin",
        description="Serve the function in ./function to a Carpool sidecar or an of-watchdog.",
        epilog="Settings are environment variables, see docs/handler.md.",
    )
    parser.add_argument(
        "--check", action="store_true", help="load, warm up and exit: 0 if the function can serve"
    )
    return bool(parser.parse_args(argv).check)


def _check(settings: HandlerSettings) -> int:
    seconds = _load(settings)[1]
    logs.say(f"check passed: loaded and warmed up in {seconds:.2f} s")
    return 0


def _serve(settings: HandlerSettings) -> int:
    sys.setswitchinterval(_SWITCH_S)
    service = Service(settings.key, settings.answer_max_bytes, settings.body_max_bytes)
    model_thread = ModelThread()
    limits = ReadLimits(
        body_bytes=settings.body_max_bytes + wire.OVERHEAD_BYTES,
        connections=2 * settings.streams_max,  # half of them for batches
    )
    server = Server(address.parse(settings.listen), service, limits)
    lifecycle = Lifecycle(
        exit_on_term=settings.exit_on_term, quiet_s=server.quiet_s, clean_up=server.close
    )
    lifecycle.start()
    server.start()
    try:
        (function, streaming), seconds = _load(settings)
        gc.collect()
        gc.freeze()  # what was loaded stays, so collections during a batch can skip it
        memory.trim()  # what loading took and freed, which is more than a model's own size
        alone = model_thread if function.on_main_thread else ModelLock()
        turns = Concurrent() if function.concurrency > 1 else alone
        service.open(BatchRunner(function, turns), streaming)
        ready_notice.tell()
        logs.say(f"ready on {server.address} after {seconds:.2f} s, JSON by {json_codec.NAME}")
        model_thread.run_forever()
    finally:
        server.close()
    return 1


def _load(settings: HandlerSettings) -> tuple[Loaded, float]:
    start_s = time.monotonic()
    return loading.load(settings), time.monotonic() - start_s
