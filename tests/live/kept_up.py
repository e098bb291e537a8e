"""A whole stack for tests that is restarted whenever it dies."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.faas_stack.test_up import carpool
from tests.live.stack import ARGUMENTS, Stack, ends_well
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.faas_stack.test_up import Up

__all__ = ["KeptUp", "kept_up"]


_BACKLOG_S = 5.0  # what has come while the provider was stopped comes all at once then


@dataclass(slots=True)
class Away:
    """A period in which a provider was gone or stopped; infinite until the provider is back."""

    gone_s: float
    back_s: float = math.inf


class KeptUp(Stack):
    """A stack that a supervisor restarts.

    Attributes:
        away: Each time that the provider was killed or stopped.
    """

    def __init__(self, up: Up, folder: Path) -> None:
        super().__init__(up, folder)
        self.away = list[Away]()

    def was_away(self, at_s: float, grace_s: float) -> bool:
        """Return whether the provider was away, or had been back for at most ``grace_s``."""
        return any(each.gone_s <= at_s <= each.back_s + grace_s for each in self.away)

    @property
    def is_back(self) -> bool:
        """Return whether the provider runs again after all its kills."""
        return all(math.isfinite(each.back_s) for each in self.away)

    def stalled(self, from_s: float, to_s: float) -> None:
        """Record that the provider was stopped for a while; its calls continue afterwards."""
        self.away.insert(0, Away(from_s, to_s + _BACKLOG_S))

    def kill_provider(self) -> None:
        """Send SIGKILL to the provider."""
        self.away.append(Away(time.monotonic()))
        self.up.process.kill()


@contextlib.contextmanager
def kept_up(folder: Path) -> Iterator[KeptUp]:
    """Yield a stack that is restarted at its address whenever it dies, as a supervisor would do."""
    with contextlib.ExitStack() as starts:

        def started(*ports: str) -> Up:
            options = (*ARGUMENTS, *ports, "--scaler", "--hold 2s")
            return starts.enter_context(carpool(folder, *options))

        provider, scaler = str(free_port()), str(free_port())
        running = KeptUp(started("--port", provider, "--scaler-port", scaler), folder)
        over = threading.Event()

        def supervise() -> None:
            while not over.wait(0.2):
                if running.up.process.poll() is None:
                    continue
                running.up = started("--port", provider, "--scaler-port", scaler)
                assert running.up.process.stdout is not None
                if running.up.process.stdout.readline():  # else its ports were still taken
                    running.away[-1].back_s = time.monotonic()

        supervisor = threading.Thread(target=supervise)
        supervisor.start()
        try:
            yield running
        finally:
            over.set()
            supervisor.join()
            ends_well(running.up)
