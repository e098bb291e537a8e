"""What a scaler restores of its state after a restart, or when it leads again."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from carpool.latency.linear import Linear
from scaler.control.class_function import Status
from scaler.control.dependencies import Dependencies
from scaler.control.functions import Functions
from scaler.control.message_order import MessageOrder
from scaler.persistence import Persistence
from scaler.prewarm.fixed import FixedKeepAlive
from scaler.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from scaler.control.controller import Controller

LABELS = {"com.carpool.scale.policy": "infless", "com.carpool.scale.min": "1"}
MODEL = Linear(0.02, 0.002)
TERM = 7


class Scaler:
    """The functions of a scaler, and what keeps their state."""

    def __init__(
        self,
        store: Store,
        *names: str,
        term_before: int | None = None,
        prewarm: type[FixedKeepAlive] = FixedKeepAlive,
    ) -> None:
        models = dict.fromkeys(names, MODEL)
        dependencies = Dependencies(TERM, models=models, prewarm=lambda: prewarm(prewarm.Params()))
        self.functions = Functions(dependencies, now=time.monotonic, wall=time.time)
        self.keeping = Persistence(store, self.functions, MessageOrder(), term_before)
        self.observe(*names)

    def observe(self, *names: str) -> None:
        """Process a list of these functions, and restore what is kept of new ones."""
        listed = {name: Status(name, 1, 1, {"name": name, "labels": LABELS}) for name in names}
        for controller in self.functions.observe(listed):
            self.keeping.absorb(controller)

    def controller(self, name: str) -> Controller:
        """Return the controller of a function."""
        found = self.functions.find(name)
        assert found is not None
        return found

    def keep(self) -> None:
        """Give every function its first plan, and store everything."""
        for controller in self.functions:
            controller.follow(controller.first_plan(), 0.0)
        asyncio.run(self.keeping.collect(whole=True))
        self.keeping.keep()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with closing(Store(tmp_path / "scaler.db")) as made:
        yield made


@pytest.mark.parametrize("before", [None, TERM])
def test_plan_of_previous_leader_is_restored(store: Store, before: int | None) -> None:
    """A plan is restored if no other scaler has led since it was stored."""
    Scaler(store, "f").keep()
    assert Scaler(store, "f", term_before=before).controller("f").plan is not None


def test_plan_is_not_restored_if_another_scaler_has_led_since(store: Store) -> None:
    """A plan from before another scaler's term is not put into force again."""
    Scaler(store, "f").keep()
    assert Scaler(store, "f", term_before=TERM + 1).controller("f").plan is None


class Forgetful(FixedKeepAlive):
    """A prewarm policy that does not understand what it has stored."""

    def absorb(self, data: Mapping[str, Any]) -> None:
        """See `PrewarmPolicy.absorb`."""
        raise KeyError(*data)


def test_function_is_restored_although_prewarm_policy_of_another_fails(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """A prewarm policy that cannot absorb what is stored is reported, and others are restored."""
    Scaler(store, "f", "g").keep()
    with store.round():
        store.put("prewarm", {"f": {"seen": 1}})
    again = Scaler(store, "f", "g", prewarm=Forgetful)
    assert again.controller("g").plan is not None
    assert "f: its saved state was ignored: KeyError: 'seen'" in caplog.text


def test_state_of_removed_function_is_dropped(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function leaves no state to a later one, though one from before a restart may come late."""
    Scaler(store, "late", "f", "g").keep()
    with store.round():
        store.put("prewarm", {"late": {}, "f": {}, "g": {}})
    scaler = Scaler(store, "f", "g")
    scaler.keep()
    scaler.observe("f")
    scaler.keep()
    for kind in ("function", "prewarm"):
        assert ["f", "late"] == list(store.get(kind))
    monkeypatch.setattr("scaler.persistence._DEPLOYED_ROUNDS", 3)
    scaler.keep()
    for kind in ("function", "prewarm"):
        assert ["f"] == list(store.get(kind))


def test_state_is_kept_until_functions_are_listed(store: Store) -> None:
    """A gateway that has not listed its functions yet costs no state."""
    Scaler(store, "f").keep()
    functions = Functions(Dependencies(TERM), now=time.monotonic, wall=time.time)
    keeping = Persistence(store, functions, MessageOrder())
    asyncio.run(keeping.collect(whole=True))
    keeping.keep()
    assert ["f"] == list(store.get("function"))
