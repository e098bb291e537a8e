"""Writes the scaler's state to its store, and restores it after a restart.

`collect` takes what has changed, on the event loop; `keep` writes it, in a thread. A restarted
scaler continues from what was written last.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from carpool.errors import CarpoolError
from carpool.policy_errors import raised
from scaler.store import KINDS

if TYPE_CHECKING:
    from scaler.control.controller import Controller
    from scaler.control.functions import Functions
    from scaler.control.message_order import MessageOrder
    from scaler.store import Store

__all__ = ["Persistence", "Term", "next_term"]

log = logging.getLogger(__name__)

_REMEMBERED_MINUTES = 90 * 24 * 60
_DEPLOYED_ROUNDS = 4096  # by then, functions from before a restart have been deployed again
_LEARNED_ROUNDS = 16  # histograms are larger than the rest, and change little


_MS_PER_S = 1000
_TERM_MAX = 2**53 - 1  # beyond it no front would follow


def next_term(store: Store, wall_s: float) -> int:
    """Return the term of a scaler that starts now, which is higher than any before.

    It is the time in milliseconds since the epoch, so it is also higher than that of a scaler
    started earlier on another machine, or without its store. It is above the terms in the store,
    too, so that a clock that was set back does no harm.
    """
    kept = [data.get("term") for data in store.get("function").values()]
    terms = [term for term in kept if isinstance(term, int) and term < _TERM_MAX]
    return max(int(wall_s * _MS_PER_S), 1 + max(terms, default=0))


class Term(NamedTuple):
    """Term of a leader, and of the one before it; None if no other scaler could have led."""

    number: int
    before: int | None = None


class Persistence:
    """Transfers state between the running scaler and its store.

    Args:
        store: The store.
        functions: The running state.
        senders: Last message number of each sender.
        term_before: Term whose plans alone are restored; None to restore those of any term.
    """

    def __init__(
        self,
        store: Store,
        functions: Functions,
        senders: MessageOrder,
        term_before: int | None = None,
    ) -> None:
        self._store = store
        self._functions = functions
        self._term_before = term_before
        self._senders = senders
        self._before: dict[str, dict[str, Any]] = {}
        self._pending: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        self._arrivals: Counter[tuple[str, str, int]] = Counter()
        self._gone: list[str] = []
        self._removed: set[str] = set()
        self._rounds = 0
        self._kept_functions = store.get("function")
        self._kept_prewarm = store.get("prewarm")
        senders.absorb(store.get("sender"), functions.now())

    def absorb(self, controller: Controller) -> None:
        """Restore the stored state of a function that is new, or new again."""
        data = self._kept_functions.pop(controller.name, None)
        learned = self._kept_prewarm.pop(controller.name, None)
        if data is None:
            return
        if self._term_before not in (None, data.get("term")):
            data = {}  # another scaler has led since, and its plan is in force
        try:
            controller.absorb(data, learned, self._functions.now())
        except (Exception, SystemExit) as error:  # noqa: BLE001  a prewarm policy may be any code
            why = str(error) if isinstance(error, CarpoolError) else raised(error)
            log.warning("%s: its saved state was ignored: %s", controller.name, why)

    async def collect(self, *, whole: bool = False) -> None:
        """Take what has changed since the last time; with ``whole``, everything learned too."""
        self._rounds += 1
        changed = self._pending["function"]
        for controller in list(self._functions):
            await asyncio.sleep(0)  # sidecars are answered in between
            data = controller.to_dict()
            if data != self._before.get(controller.name):
                self._before[controller.name] = changed[controller.name] = data
        self._pending["sender"] |= self._senders.changed()
        if whole or self._rounds % _LEARNED_ROUNDS == 0:
            states = {controller.name: controller.prewarm_dict() for controller in self._functions}
            self._pending["prewarm"] |= {n: data for n, data in states.items() if data}
            self._drop_removed()
        self._arrivals += self._functions.arrivals
        self._functions.arrivals.clear()
        gone = self._senders.forget(self._functions.now())
        for sender in gone:
            self._pending["sender"].pop(sender, None)
        self._gone += gone

    def _drop_removed(self) -> None:
        """Drop the state of removed functions, so that later namesakes do not get it."""
        if not self._functions.listings:
            return
        pending = (self._pending["function"], self._pending["prewarm"])
        states = (self._before, self._kept_functions, self._kept_prewarm, *pending)
        known = set(self._before)
        if self._rounds >= _DEPLOYED_ROUNDS:
            known |= {*self._kept_functions, *self._kept_prewarm}
        gone = known - {controller.name for controller in self._functions}
        for state in states:
            for name in gone & state.keys():
                del state[name]
        self._removed |= gone

    def keep(self) -> None:
        """Write what was collected, in one transaction; if that fails, it is kept for the next.

        Raises:
            ConfigError: The store cannot be written.
        """
        with self._store.round():
            self._store.drop("sender", *self._gone)
            for kind in ("function", "prewarm"):
                self._store.drop(kind, *self._removed)
            for kind, states in self._pending.items():
                self._store.put(kind, states)
            for (function, app, minute), count in self._arrivals.items():
                self._store.count(function, app, minute, count)
            if self._rounds % _LEARNED_ROUNDS == 0:
                self._store.forget(int(self._functions.wall()) // 60 - _REMEMBERED_MINUTES)
        self._pending, self._gone, self._removed = {kind: {} for kind in KINDS}, [], set()
        self._arrivals.clear()
