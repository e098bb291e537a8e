"""Plans that change constantly, and a check of the ledger's batches against them.

It is pure: it uses neither sockets nor clocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.core.batch import Fault
from tests.soak.asked import APPS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

__all__ = ["LedgerCheck", "Planner"]

_CLASSES = ("small", "middle", "big")
_SIZES = (2, 4, 8, 16, 32)
_WAITS_S = (0.0, 0.001, 0.005, 0.02)
_OUTCOMES = {"answered", *(fault.value for fault in Fault)}
_ATTEMPTS_MAX = 4 + 5 - 1  # four deaths alone, and five in all that reached no instance


class Planner:
    """Draws plans with varying classes, sizes, routes and addresses.

    Args:
        rng: Source of random numbers.
        addresses: Addresses of the handlers; a single one is in every plan.
        ghost: An address on which nothing has ever listened.

    Attributes:
        addresses: As given.
        drawn: Every plan so far with its addresses; its index is its version minus one.
    """

    def __init__(self, rng: Random, addresses: Sequence[str], ghost: str) -> None:
        self._rng = rng
        self.addresses = list(addresses)
        self._ghost = ghost
        self.drawn: list[dict[str, Any]] = []

    def draw(self) -> dict[str, Any]:
        """Return the next plan with its addresses, as the operator's address accepts it."""
        rng = self._rng
        staying = max(1, len(self.addresses) - rng.randrange(2))
        chosen = rng.sample(self.addresses, staying)
        names = rng.sample(_CLASSES, rng.randint(1, min(len(_CLASSES), staying)))
        places = {name: chosen[number :: len(names)] for number, name in enumerate(names)}
        if rng.random() < 0.2:
            places[names[0]].append(self._ghost)
        classes = [
            {"name": name, "cpu": 1.0, "batch_size": rng.choice(_SIZES), "replicas": 1}
            for name in names
        ]
        apps = [*rng.sample(APPS, rng.randrange(len(APPS) + 1)), "*"]
        plan = {
            "function": "soak",
            "version": len(self.drawn) + 1,
            "policy": "by-hand",
            "classes": classes,
            "routes": [self._route(app, names) for app in apps],
        }
        self.drawn.append({"plan": plan, "instances": places})
        return self.drawn[-1]

    def _route(self, app: str, names: Sequence[str]) -> dict[str, Any]:
        admitted = self._rng.sample(names, self._rng.randint(1, len(names)))
        shares = [self._rng.randint(1, 9) for _ in admitted]
        weights = {name: share / sum(shares) for name, share in zip(admitted, shares, strict=True)}
        return {"app": app, "weights": weights, "max_wait_s": self._rng.choice(_WAITS_S)}


class LedgerCheck:
    """Checks each of the ledger's entries once.

    An entry has the plan that was in force when its batch came back. The batch may have left under
    the plan before, so it must agree with one of the two.

    Args:
        proposals: Every plan with its addresses, by version minus one.
        batch_max: Largest batch without a plan.

    Attributes:
        wrong: Entries that agree with neither plan, in words.
    """

    def __init__(self, proposals: Sequence[dict[str, Any]], batch_max: int) -> None:
        self._proposals = proposals
        self._batch_max = batch_max
        self._batches: set[int] = set()
        self._answered: set[int] = set()
        self.wrong: list[str] = []

    @property
    def seen(self) -> int:
        """Number of batches checked."""
        return len(self._batches)

    def look(self, entries: Sequence[dict[str, Any]]) -> int:
        """Check the new entries and return their number."""
        new = [entry for entry in entries if entry["batch"] not in self._batches]
        for entry in new:
            self._batches.add(entry["batch"])
            self.wrong += [f"{text}: {entry}" for text in self._objections(entry)]
        return len(new)

    def _objections(self, entry: dict[str, Any]) -> list[str]:
        ids = [request["id"] for request in entry["requests"]]
        answered = set(ids) if entry["outcome"] == "answered" else set()
        again = self._answered & answered
        self._answered |= answered
        checks = {
            "an unknown outcome": entry["outcome"] in _OUTCOMES,
            "no request in it": 0 < len(ids) <= entry["items"],
            "a request twice in it": len(set(ids)) == len(ids),
            f"answered once more, {sorted(again)}": not again,
            "sent too often": 1 <= entry["attempt"] <= _ATTEMPTS_MAX,
            "negative times": entry["wait_s"] >= 0 and entry["exec_s"] >= 0,
            "not as the plan has it": self._planned(entry),
        }
        return [text for text, good in checks.items() if not good]

    def _planned(self, entry: dict[str, Any]) -> bool:
        version = entry["plan_version"]
        if version is None:
            return len(entry["requests"]) == 1 or entry["items"] <= self._batch_max
        return _agrees(entry, self._proposals[version - 1])


def _agrees(entry: dict[str, Any], proposal: dict[str, Any]) -> bool:
    """Return whether the plan allows the batch's instance, size and members."""
    plan, address = proposal["plan"], entry["upstream"]
    homes = [name for name, places in proposal["instances"].items() if address in places]
    if not homes:
        return False
    sizes = {each["name"]: each["batch_size"] for each in plan["classes"]}
    weights = {route["app"]: route["weights"] for route in plan["routes"]}
    apps = {request["app"] for request in entry["requests"]}
    fits = len(entry["requests"]) == 1 or entry["items"] <= sizes[homes[0]]
    return fits and all(homes[0] in weights.get(app, weights["*"]) for app in apps)
