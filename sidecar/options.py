"""How one sidecar process runs: where it listens, what it starts, how long things may take.

Settings of the *function* (objective, policy, sizes) are `carpool.settings`; these are of the
process, read from the environment beside the watchdog's own variables.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from carpool import address, durations
from carpool.liveness import LIMIT_S
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HEADS_BYTES", "SCALER_SECRET", "Options"]

HEADS_BYTES = 1024 * 1024  # room that a batch's heads have beside its bodies
SCALER_SECRET = "carpool-scaler-token"  # noqa: S105 - its name
_SECRETS = "/var/openfaas/secrets"

_PREFIX = "sidecar_"
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_WATCHDOG = ("auto", "on", "off")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a sidecar process; `from_env` names the variables.

    Attributes:
        listen: where requests come in.
        upstreams: addresses of handlers started elsewhere; empty: start our own.
        fprocess: command of the handler, split on spaces, no shell.
        watchdog: ``auto`` (of-watchdog where ``fwatchdog`` is on the PATH), ``on`` or ``off``.
        watchdog_port, handler_port: loopback ports, used with the watchdog only.
        exec_timeout_s: how long one batch may take; ``inf``: as long as it likes.
        silence_max_s: how long the handler may answer no probe, while it has no batch, before it
            is restarted; ``inf``: for ever.
        scaler: where the scaler takes syncs (`sidecar.runtime.scaler_client.sync`); empty: none.
        scaler_token: what the scaler is shown, and must prove to know.
        function: what the user calls, as the scaler knows it.
        instance_class: the plan's class that this is an instance of; empty: it is the front of a
            function whose instances are elsewhere, if there is a scaler, and else on its own.
        plan_folder: where a front writes its last plan down, to go on with it after a restart;
            its own alone. Empty: nowhere.
        announce: where other sidecars reach this one; empty: where it listens.
        admin: where operators come in (`sidecar.runtime.admin`); empty: nowhere.
        admin_token: what they must present; required where ``admin`` is not of this machine alone.
        drain_delay_s: how long to go on accepting after SIGTERM, for routers that learn late.
        body_max_bytes: largest request, and largest batch unless it is a single request.
        answer_max_bytes: largest answer to a batch, and so to a request.
    """

    listen: str = "0.0.0.0:8080"
    upstreams: tuple[str, ...] = ()
    fprocess: str = ""
    watchdog: str = "auto"
    watchdog_port: int = 8082
    handler_port: int = 5000
    exec_timeout_s: float = 30.0
    silence_max_s: float = LIMIT_S
    scaler: str = ""
    scaler_token: str = ""
    function: str = ""
    instance_class: str = ""
    plan_folder: str = ""
    announce: str = ""
    admin: str = ""
    admin_token: str = ""
    drain_delay_s: float = 0.0
    body_max_bytes: int = 64 * 1024 * 1024
    answer_max_bytes: int = 64 * 1024 * 1024

    @property
    def is_front(self) -> bool:
        """Whether the instances are elsewhere, where the scaler says."""
        return bool(self.scaler and not self.upstreams and not self.instance_class)

    @property
    def is_instance(self) -> bool:
        """Whether this is one of the instances that the scaler tells fronts of."""
        return bool(self.scaler and not self.upstreams and self.instance_class)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Read ``sidecar_*``, ``fprocess`` and ``exec_timeout``.

        Raises:
            ConfigError: every unknown name and ill-formed value, at once.
        """
        reader = _Reader(env)
        defaults = cls()
        options = cls(
            listen=reader.address("sidecar_listen", defaults.listen),
            upstreams=reader.addresses("sidecar_upstreams"),
            fprocess=env.get("fprocess", "").strip(),
            watchdog=reader.choice("sidecar_watchdog", _WATCHDOG, defaults.watchdog),
            watchdog_port=reader.whole("sidecar_watchdog_port", defaults.watchdog_port, 65535),
            handler_port=reader.whole("sidecar_handler_port", defaults.handler_port, 65535),
            exec_timeout_s=reader.limit("exec_timeout", defaults.exec_timeout_s),
            silence_max_s=reader.limit("sidecar_silence_max", defaults.silence_max_s),
            scaler=reader.address("sidecar_scaler", ""),
            scaler_token=reader.secret("sidecar_scaler_token", SCALER_SECRET),
            function=reader.text("sidecar_function") or env.get("OPENFAAS_NAME", ""),
            instance_class=reader.text("sidecar_class"),
            plan_folder=reader.folder("sidecar_plan_folder"),
            announce=reader.address("sidecar_announce", ""),
            admin=reader.side_door("sidecar_admin", "sidecar_admin_token"),
            admin_token=env.get("sidecar_admin_token", "").strip(),
            drain_delay_s=reader.duration("sidecar_drain_delay", defaults.drain_delay_s),
            body_max_bytes=reader.whole("sidecar_body_max_bytes", defaults.body_max_bytes, 2**32),
            answer_max_bytes=reader.whole(
                "sidecar_answer_max_bytes", defaults.answer_max_bytes, 2**32
            ),
        )
        reader.require_function(options)
        reader.finish()
        return options


class _Reader:
    """Typed look-ups that collect what is wrong."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._problems = Problems()
        self._asked: set[str] = set()

    def text(self, name: str) -> str:
        self._asked.add(name)
        return self._env.get(name, "").strip()

    def secret(self, name: str, file: str) -> str:
        """The variable, or else the function's secret of that name, where it has it."""
        if text := self.text(name):
            return text
        folder = Path(self._env.get("secret_mount_path", "").strip() or _SECRETS)
        with suppress(OSError, UnicodeDecodeError):
            return (folder / file).read_text(encoding="utf-8").strip()
        return ""

    def folder(self, name: str) -> str:
        """A folder; ``tmp`` is the one for temporary files, where every process has its own."""
        text = self.text(name)
        if text == "tmp":
            text = self._env.get("TMPDIR", "")
        if text and not Path(text).is_dir():
            self._problems.add(name, text, "an existing folder")
            return ""
        return text

    def require_function(self, options: Options) -> None:
        if options.scaler and not options.function:
            expected = "the function's name, as there is a scaler"
            self._problems.add("sidecar_function", "", expected)

    def address(self, name: str, default: str) -> str:
        text = self.text(name) or default
        return text if not text or self._is_address(name, text) else default

    def side_door(self, name: str, token_name: str) -> str:
        """An address open to all only if there is a token to show."""
        text, token = self.text(name), self.text(token_name)
        if not text or not self._is_address(name, text):
            return ""
        where = address.parse(text)
        if not (where.path or token or where.host in _LOOPBACK):
            expected = "a loopback address or unix:PATH, or a token"
            self._problems.add(name, text, expected, f"set {token_name}")
        return text

    def addresses(self, name: str) -> tuple[str, ...]:
        texts = [text.strip() for text in self.text(name).split(",") if text.strip()]
        return tuple(text for text in texts if self._is_address(name, text))

    def _is_address(self, name: str, text: str) -> bool:
        return self._problems.attempt(lambda: address.parse(text, name)) is not None

    def choice(self, name: str, known: tuple[str, ...], default: str) -> str:
        text = self.text(name) or default
        if text not in known:
            self._problems.add(name, text, f"one of {', '.join(known)}")
        return text

    def whole(self, name: str, default: int, largest: int) -> int:
        text = self.text(name)
        if text and not (text.isdecimal() and 0 < int(text) <= largest):
            self._problems.add(name, text, f"a whole number from 1 to {largest}")
            return default
        return int(text) if text else default

    def duration(self, name: str, default: float) -> float:
        text = self.text(name)
        try:
            if text.isdecimal():  # the watchdog takes plain seconds too
                return float(text)
            return durations.parse(text) if text else default
        except ValueError:
            self._problems.add(name, text, "a duration such as 30s")
            return default

    def limit(self, name: str, default: float) -> float:
        """A duration, of which 0 means that there is no limit, as for the watchdog."""
        limit_s = self.duration(name, default)
        if limit_s < 0:
            self._problems.add(name, self.text(name), "a duration, or 0 for no limit")
        return limit_s or math.inf

    def finish(self) -> None:
        for name, value in sorted(self._env.items()):
            if name.startswith(_PREFIX) and name not in self._asked:
                self._problems.unknown(name, self._asked, value)
        self._problems.raise_if_any()
