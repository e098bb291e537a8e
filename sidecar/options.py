"""Options of one sidecar process: where it listens, what it starts, and its time limits.

Settings of the *function* (objective, policy, sizes) are in `carpool.settings`; these options
belong to the process, and are read from the environment beside the watchdog's own variables.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from carpool import address, setting_spec, setting_types
from carpool.liveness import LIMIT_S
from carpool.setting_spec import variable
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HEADS_BYTES", "SCALER_SECRET", "Options"]

HEADS_BYTES = 1024 * 1024  # limit of a batch's heads, in addition to its bodies
SCALER_SECRET = "carpool-scaler-token"  # noqa: S105 - its name
_SECRETS = "/var/openfaas/secrets"

_PREFIX = "sidecar_"
_MIB = 1024 * 1024
_TEXT = setting_types.text()
_ADDRESS = setting_types.socket_address()
_LIMIT = setting_types.time_limit()
_PORT = setting_types.integer("a whole number from 1 to 65535", lambda v: 1 <= v <= 65535)  # noqa: PLR2004
_BYTES = setting_types.integer("a whole number from 1 to 4294967296", lambda v: 1 <= v <= 2**32)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a sidecar process."""

    fprocess: str = variable("fprocess", _TEXT, "", "the handler's command, split at spaces")
    listen: str = variable("sidecar_listen", _ADDRESS, "0.0.0.0:8080", "address to listen on")
    watchdog: str = variable(
        "sidecar_watchdog",
        setting_types.choice("auto", "on", "off"),
        "auto",
        "of-watchdog between sidecar and handler; `auto`: if `fwatchdog` is on the PATH",
    )
    upstreams: tuple[str, ...] = variable(
        "sidecar_upstreams",
        setting_types.addresses(),
        (),
        "comma-separated addresses of running handlers; if set, the sidecar starts none",
    )
    body_max_bytes: int = variable(
        "sidecar_body_max_bytes",
        _BYTES,
        64 * _MIB,
        "largest request, and largest batch unless it is a single request",
    )
    answer_max_bytes: int = variable(
        "sidecar_answer_max_bytes",
        _BYTES,
        64 * _MIB,
        "largest answer to a batch, and so to a request",
    )
    scaler: str = variable(
        "sidecar_scaler",
        _ADDRESS,
        "",
        "address of the [scaler](scaler.md): if set, this sidecar is the front of a function "
        "whose instances run elsewhere, or, with `sidecar_class`, one of these instances",
    )
    scaler_token: str = variable(
        "sidecar_scaler_token",
        _TEXT,
        "",
        "token that the sidecar presents to the scaler, which proves that it also knows it; keys "
        "for batches between a front and its instances are derived from it",
        unset=f"the secret `{SCALER_SECRET}`",
    )
    function: str = variable(
        "sidecar_function",
        _TEXT,
        "",
        "name by which users call the function; set by the scaler",
        unset="`OPENFAAS_NAME`",
    )
    instance_class: str = variable(
        "sidecar_class",
        _TEXT,
        "",
        "instance class of this instance; set by the scaler",
    )
    plan_folder: str = variable(
        "sidecar_plan_folder",
        _TEXT,
        "",
        "folder where a front saves its last plan, to resume after a restart; a folder of "
        "its own, or `tmp` for `$TMPDIR`",
    )
    announce: str = variable(
        "sidecar_announce",
        _ADDRESS,
        "",
        "address at which fronts reach this instance",
        unset="where it listens",
    )
    admin: str = variable(
        "sidecar_admin", _ADDRESS, "", "address of the admin API; none by default"
    )
    admin_token: str = variable(
        "sidecar_admin_token",
        _TEXT,
        "",
        "token of the admin API; required unless `sidecar_admin` is on this machine only",
    )
    grpc: str = variable(
        "sidecar_grpc",
        _ADDRESS,
        "",
        "address of the [gRPC service](grpc.md); none by default, and none of an instance behind a "
        "front; needs the extra `grpc`",
    )
    drain_delay_s: float = variable(
        "sidecar_drain_delay",
        setting_types.lenient_duration("a duration such as 30s", lambda v: v >= 0),
        0.0,
        "how long to keep accepting requests after SIGTERM, for load balancers that notice late",
    )
    watchdog_port: int = variable(
        "sidecar_watchdog_port", _PORT, 8082, "loopback port of the watchdog"
    )
    handler_port: int = variable(
        "sidecar_handler_port",
        setting_types.integer("a whole number from 0 to 65535", lambda v: 0 <= v <= 65535),  # noqa: PLR2004
        5000,
        "loopback port of the handler behind the watchdog, or of a [server without Carpool's "
        "handler](#a-server-that-you-have); 0: any free port",
        unset="`5000`; without of-watchdog, for such a server: any free port",
    )
    exec_timeout_s: float = variable(
        "exec_timeout",
        _LIMIT,
        30.0,
        "maximum execution time of a batch, after which the handler is restarted; the "
        "watchdog's own `exec_timeout` is set one second longer",
    )
    silence_max_s: float = variable(
        "sidecar_silence_max",
        _LIMIT,
        LIMIT_S,
        "how long an idle handler may leave probes unanswered before it is restarted; for a front, "
        "an instance before its batches are sent to others",
    )
    traces: str = variable(
        "sidecar_traces",
        _TEXT,
        "",
        "a collector's address for [traces](#traces), such as http://127.0.0.1:4318/v1/traces; "
        "needs the extra `traces`",
        unset="none",
    )
    trace_share: float = variable(
        "sidecar_trace_share",
        setting_types.decimal("a number from 0 to 1", lambda v: 0 <= v <= 1),
        0.01,
        "share of requests to trace, among those whose `traceparent` does not decide it",
    )
    log_format: str = variable(
        "sidecar_log_format",
        setting_types.choice("text", "json"),
        "text",
        "format of its own log lines: text, or one JSON object per line",
    )
    log_requests: str = variable(
        "sidecar_log_requests",
        setting_types.choice("off", "failed", "all"),
        "off",
        "log a line for each request: only those with a 5xx or whose callers disconnected, or all",
    )

    @property
    def is_front(self) -> bool:
        """Whether this is a front, whose instances run elsewhere and are named by the scaler."""
        return bool(self.scaler and not self.upstreams and not self.instance_class)

    @property
    def is_instance(self) -> bool:
        """Whether this is one of the instances that the scaler assigns to fronts."""
        return bool(self.scaler and not self.upstreams and self.instance_class)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Read ``sidecar_*``, ``fprocess`` and ``exec_timeout``.

        Raises:
            ConfigError: all unknown names and ill-formed values together.
        """
        problems = Problems()
        read = cls(**setting_spec.read_variables(cls, env, _PREFIX, problems))
        folder = env.get("TMPDIR", "") if read.plan_folder == "tmp" else read.plan_folder
        options = replace(
            read,
            scaler_token=read.scaler_token or _secret(env),
            function=read.function or env.get("OPENFAAS_NAME", ""),
            plan_folder=folder,
        )
        _check(options, problems)
        problems.raise_if_any()
        return options


def _secret(env: Mapping[str, str]) -> str:
    """Return the scaler's token from the function's secrets. Empty if there is none."""
    folder = Path(env.get("secret_mount_path", "").strip() or _SECRETS)
    with suppress(OSError, UnicodeDecodeError):
        return (folder / SCALER_SECRET).read_text(encoding="utf-8").strip()
    return ""


def _check(options: Options, problems: Problems) -> None:
    """Check options against each other, and against what exists on this machine."""
    if options.traces and not options.traces.startswith(("http://", "https://")):
        problems.add(
            "sidecar_traces", options.traces, "a URL such as http://127.0.0.1:4318/v1/traces"
        )
    if options.plan_folder and not Path(options.plan_folder).is_dir():
        problems.add("sidecar_plan_folder", options.plan_folder, "an existing folder")
    if options.scaler and not options.function:
        problems.add("sidecar_function", "", "the function's name, as there is a scaler")
    where = address.parse(options.admin) if options.admin else None
    if where and not (where.is_local or options.admin_token):
        expected = "a loopback address or unix:PATH, or a token"
        problems.add("sidecar_admin", options.admin, expected, "set sidecar_admin_token")
