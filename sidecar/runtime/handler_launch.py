"""How the function's process is started: behind of-watchdog if that is installed, else alone.

The watchdog starts the handler (``fprocess``) itself, with the same environment and in the same
process group, and both end together.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from carpool import durations
from carpool.errors import ConfigError, Problem
from carpool.free_port import free_port, is_free
from carpool.process import ready_notice
from carpool.process.early_start import EarlyStart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.options import Options

__all__ = ["HandlerLaunch", "plan_launch"]

_LONGEST_SOCKET_PATH = 107  # bytes, on Linux
_LATER_S = 1.0  # the watchdog's limits end later than ours, so that ours apply first
_NO_TIMEOUT = "8760h"  # the watchdog does not start without a write limit


@dataclass(frozen=True, slots=True)
class HandlerLaunch:
    """The process to start.

    Attributes:
        argv: the command.
        env: its environment.
        address: where it takes batches.
        key: secret that a batch must present to it.
        scratch: a folder made for it, removed when it is stopped; it has the socket for readiness.
            Empty if none could be made: it is then probed until it is ready.
        port: loopback port that must be free when it starts, as another server there would be
            mistaken for it; 0 if none.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    address: str
    key: str
    scratch: str = ""
    port: int = 0

    @property
    def notices(self) -> str:
        """Socket on which the process says that it is ready. Empty if there is none."""
        return self.env.get(ready_notice.VARIABLE, "") if self.scratch else ""

    def start_early(self) -> EarlyStart | None:
        """Start the process now; return None if that fails, for the supervisor to report."""
        if self.port and not is_free(self.port):
            return None
        try:
            return EarlyStart(self.argv, self.env)
        except OSError:
            return None


def plan_launch(options: Options, env: Mapping[str, str], *, plain: bool = False) -> HandlerLaunch:
    """Decide how the function's process is started.

    Args:
        options: of the sidecar.
        env: environment of the process, to which variables are added.
        plain: whether it is a server that knows nothing of Carpool, and listens at ``PORT``.

    Raises:
        ConfigError: no ``fprocess``, or the watchdog is required and missing.
    """
    if not options.fprocess:
        hint = "set fprocess='python -m watchdog_plugin'"
        raise ConfigError([Problem("fprocess", "", "the handler's command", hint)])
    # of-watchdog listens on every interface, so other machines could reach the handler.
    key = os.urandom(16).hex()
    env = {**_defaults(options), **env, "handler_key": key}
    watchdog = shutil.which("fwatchdog", path=env.get("PATH")) if options.watchdog != "off" else ""
    if options.watchdog == "on" and not watchdog:
        expected = "fwatchdog on the PATH"
        raise ConfigError([Problem("sidecar_watchdog", "on", expected, "install of-watchdog")])
    scratch = _scratch()
    env[ready_notice.VARIABLE] = f"{scratch}/ready.sock" if scratch else ""
    by_socket = bool(scratch) and not (watchdog or plain)
    # Without of-watchdog, several servers share a machine, and only one can have the port.
    fixed = bool(watchdog or by_socket or env.get("sidecar_handler_port"))
    options = replace(options, handler_port=(fixed and options.handler_port) or free_port())
    if plain:
        env["PORT"] = str(options.handler_port)  # as gunicorn and others read it
    if watchdog:
        return replace(_behind_watchdog(watchdog, options, env, key), scratch=scratch)
    port = 0 if by_socket else options.handler_port
    address = f"unix:{scratch}/handler.sock" if by_socket else f"127.0.0.1:{port}"
    if not plain:
        env |= {"handler_listen": address, "handler_exit_on_term": "true"}
    return HandlerLaunch(tuple(options.fprocess.split()), env, address, key, scratch, port)


def _scratch() -> str:
    """Make a folder for sockets; return an empty string if there is nowhere to write.

    So it is if a path of the system's own is too long for that of a socket.
    """
    try:
        folder = tempfile.mkdtemp(prefix="carpool-")
    except OSError:
        return ""
    if len(f"{folder}/handler.sock".encode()) <= _LONGEST_SOCKET_PATH:
        return folder
    Path(folder).rmdir()
    return ""


def _defaults(options: Options) -> dict[str, str]:
    """Return defaults for the handler: a model named like its function, and matching limits.

    The handler must take all that the sidecar may send, bodies and a MiB for their heads, and must
    not send responses larger than the sidecar takes.
    """
    named = {"model_name": options.function} if options.function else {}
    return named | {
        "handler_body_max_mib": str(options.body_max_bytes // 2**20 + 2),
        "handler_answer_max_mib": str(max(1, options.answer_max_bytes // 2**20)),
    }


def _behind_watchdog(
    watchdog: str, options: Options, env: Mapping[str, str], key: str
) -> HandlerLaunch:
    limited = options.exec_timeout_s < math.inf
    timeout = durations.format(options.exec_timeout_s + _LATER_S) if limited else _NO_TIMEOUT
    defaults = {
        "read_timeout": timeout,
        "write_timeout": _NO_TIMEOUT,  # would end streams; for batches, exec_timeout applies
        "healthcheck_interval": "1s",
        "log_buffer_size": "-1",  # a line over the default 64 KiB would end the log pump
        "prefix_logs": "false",
    }
    own = {
        "exec_timeout": timeout if limited else "0s",
        "mode": "http",
        "port": str(options.watchdog_port),
        "upstream_url": f"http://127.0.0.1:{options.handler_port}",
        "ready_path": "/_/ready",
        "handler_listen": f"127.0.0.1:{options.handler_port}",
        "fprocess": options.fprocess,
    }
    address = f"127.0.0.1:{options.watchdog_port}"
    return HandlerLaunch((watchdog,), {**defaults, **env, **own}, address, key)
