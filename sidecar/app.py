"""The sidecar process: ``python -m sidecar``, the entry point of a function.

The function's process is started first: while it imports and loads, the sidecar imports the rest of
its own modules, including the event loop.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from carpool.errors import CarpoolError
from carpool.settings import FunctionSettings
from carpool.validation.problems import Problems
from sidecar.options import Options
from sidecar.runtime.handler_launch import plan_launch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from logging import Logger

    from carpool.process.early_start import EarlyStart
    from sidecar.runtime.handler_launch import HandlerLaunch

__all__ = ["main", "start"]

_GRACE_S = 5.0


async def _run(
    settings: FunctionSettings,
    options: Options,
    env: Mapping[str, str],
    launch: HandlerLaunch | None,
    started: EarlyStart | None,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain.

    Raises:
        ConfigError: the settings cannot be used.
        OSError: the address cannot be bound.
    """
    from sidecar.runtime.handler_process import HandlerProcess  # noqa: PLC0415 - after the start
    from sidecar.serving import serve_function  # noqa: PLC0415

    handler = HandlerProcess(launch, started) if launch else None
    if handler:
        handler.start()
    try:
        await serve_function(settings, options, env, handler)
    finally:
        if handler:
            await handler.stop(_GRACE_S)


def _configuration(env: Mapping[str, str]) -> tuple[FunctionSettings, Options]:
    problems = Problems()
    settings = problems.attempt(lambda: FunctionSettings.from_env(env))
    options = problems.attempt(lambda: Options.from_env(env))
    problems.raise_if_any()
    assert settings  # noqa: S101 - both are there, or there was a problem
    assert options  # noqa: S101
    return settings, options


def _prepared(env: Mapping[str, str]) -> tuple[FunctionSettings, Options, HandlerLaunch | None]:
    """Read the settings and options, and decide how the function's process is started."""
    settings, options = _configuration(env)
    if options.is_front or options.upstreams:
        return settings, options, None
    return settings, options, plan_launch(options, env, plain=settings.wire != "carpool")


def _log(env: Mapping[str, str]) -> Logger:
    """Configure logging as the environment says, and return this module's logger."""
    import logging  # noqa: PLC0415 - while the handler starts

    from carpool import json_log  # noqa: PLC0415

    as_json = env.get("sidecar_log_format") == "json"  # also for errors of the options
    json_log.configure("sidecar", as_json=as_json, function=env.get("OPENFAAS_NAME", ""))
    return logging.getLogger(__name__)


def start(env: Mapping[str, str]) -> int:
    """Run a sidecar with the settings in ``env`` until it is stopped; return the exit code."""
    started = None
    try:
        settings, options, launch = _prepared(env)
        started = launch.start_early() if launch else None
        log = _log(env)
        if launch and not launch.scratch:
            log.warning(
                "no folder for temporary files can be written, or its path is too long for a "
                "socket: the function's process is reached at %s, and probed until it is ready",
                launch.address,
            )
        import uvloop  # noqa: PLC0415 - while the handler starts

        uvloop.run(_run(settings, options, env, launch, started))
    except CarpoolError as error:
        _log(env).error("%s", error)
        return error.exit_code
    except OSError as error:
        _log(env).error("cannot listen on %s: %s", env.get("sidecar_listen"), error)
        return 1
    finally:
        if started:  # still running if an import failed before it was taken over
            started.end()
    return 0


def main(argv: list[str]) -> int:
    """Run ``carpool sidecar``."""
    import argparse  # noqa: PLC0415 - the entry point of a function has no arguments

    parser = argparse.ArgumentParser(
        prog="carpool sidecar", description="Run a sidecar with the settings in the environment."
    )
    parser.add_argument("--listen", help="HOST:PORT or unix:PATH (default: $sidecar_listen)")
    parser.add_argument(
        "--upstream", action="append", default=[], help="a handler's address; may be repeated"
    )
    args = parser.parse_args(argv)
    given = {"sidecar_listen": args.listen, "sidecar_upstreams": ",".join(args.upstream)}
    return start({**os.environ, **{name: value for name, value in given.items() if value}})
