"""How the function's process is started: behind of-watchdog where that is installed, else alone.

The watchdog starts the handler (``fprocess``) itself, with the same environment and in the same
process group, and both end together.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from carpool import durations
from carpool.errors import ConfigError, Problem
from carpool.free_port import free_port, is_free
from carpool.process import ready_notice
from carpool.process.early_start import EarlyStart

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.options import Options

__all__ = ["Launch", "plan_launch"]

_LATER_S = 1.0  # the watchdog's times are over after ours, so that we find out first
_NO_TIMEOUT = "8760h"  # the watchdog does not start without a limit to its writing


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start.

    Attributes:
        argv: the command.
        env: its environment.
        address: where it takes batches.
        key: what a batch must show there; a secret.
        scratch: a folder made for it, removed when it is stopped; where it says that it is ready.
        port: of loopback, which nobody may have when it starts: another's server there would be
            taken for it; 0: none.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    address: str
    key: str
    scratch: str = ""
    port: int = 0

    @property
    def notices(self) -> str:
        """The socket on which it says that it is ready; empty if there is none."""
        return self.env.get(ready_notice.VARIABLE, "") if self.scratch else ""

    def start_early(self) -> EarlyStart | None:
        """Start it now; None if that is not possible, as the supervisor is to find and report."""
        if self.port and not is_free(self.port):
            return None
        try:
            return EarlyStart(self.argv, self.env)
        except OSError:
            return None


def plan_launch(options: Options, env: Mapping[str, str], *, plain: bool = False) -> Launch:
    """Decide how the function's process is started.

    Args:
        options: of the sidecar.
        env: what the process gets beside what is said here.
        plain: it is a server that knows nothing of Carpool, and listens at ``PORT``.

    Raises:
        ConfigError: no ``fprocess``, or the watchdog is demanded and missing.
    """
    if not options.fprocess:
        problem = Problem("fprocess", "", "the handler's command", "python -m watchdog_plugin")
        raise ConfigError([problem])
    # of-watchdog listens on every interface, so all that reaches this machine reaches the handler.
    key = os.urandom(16).hex()
    env = {**_defaults(options), **env, "handler_key": key}
    watchdog = shutil.which("fwatchdog", path=env.get("PATH")) if options.watchdog != "off" else ""
    # Alone, several of them share a machine, and the default port is only one of theirs.
    fixed = bool(watchdog or not plain or env.get("sidecar_handler_port"))
    options = replace(options, handler_port=(fixed and options.handler_port) or free_port())
    port = {"PORT": str(options.handler_port)} if plain else {}  # as gunicorn and others read it
    if options.watchdog == "on" and not watchdog:
        expected = "fwatchdog on the PATH"
        raise ConfigError([Problem("sidecar_watchdog", "on", expected, "install of-watchdog")])
    scratch = tempfile.mkdtemp(prefix="carpool-")
    env = {**env, **port, ready_notice.VARIABLE: f"{scratch}/ready.sock"}
    if watchdog:
        return replace(_behind_watchdog(watchdog, options, env, key), scratch=scratch)
    argv = tuple(options.fprocess.split())
    if plain:
        address = f"127.0.0.1:{options.handler_port}"
        return Launch(argv, env, address, key, scratch, options.handler_port)
    address = f"unix:{scratch}/handler.sock"
    own = {"handler_listen": address, "handler_exit_on_term": "true"}
    return Launch(argv, {**env, **own}, address, key, scratch)


def _defaults(options: Options) -> dict[str, str]:
    """A model is called as its function; limits suit those of the sidecar.

    The handler must take what the sidecar may send, bodies and a MiB for their heads, and must not
    answer more than the sidecar takes.
    """
    named = {"model_name": options.function} if options.function else {}
    return named | {
        "handler_body_max_mib": str(options.body_max_bytes // 2**20 + 2),
        "handler_answer_max_mib": str(max(1, options.answer_max_bytes // 2**20)),
    }


def _behind_watchdog(watchdog: str, options: Options, env: Mapping[str, str], key: str) -> Launch:
    limited = options.exec_timeout_s < math.inf
    timeout = durations.format(options.exec_timeout_s + _LATER_S) if limited else _NO_TIMEOUT
    defaults = {
        "read_timeout": timeout,
        "write_timeout": _NO_TIMEOUT,  # it would end streams; of batches exec_timeout is shorter
        "healthcheck_interval": "1s",
        "log_buffer_size": "-1",  # a line over the default 64 KiB would end the log pump for good
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
    return Launch((watchdog,), {**defaults, **env, **own}, address, key)
