"""Comparison of a function's versions since their shares were set."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import tempfile
from typing import Any

import pytest
from msgspec import structs

from carpool.errors import CarpoolError
from carpool.latency import Resources
from carpool.log_histogram import bin_of
from carpool.scaling import Instances
from carpool.sync import ClassReport
from scaler.command import main
from scaler.control.class_function import Status
from scaler.dashboard.comparison import Comparison
from scaler.dashboard.history import History, Reading
from scaler.planning.cost import Prices, Reserved
from tests.scaler.test_sync_api import LABELS, LISTED, REPORT, TOKEN, Caller, with_scaler

SIZE = Resources(cpu=2.0)
PRICES = Prices(cpu_core_s=0.5)
OLD = {"outcomes": {"done": 500, "late": 500}, "latency": {bin_of(5.0): 500}}


def read(**fields: Any) -> Reading:
    """Return a reading of a function with one instance of two cores."""
    return Reading(instances={"a": Instances(ready=1, loading=0)}, sizes={"a": SIZE}, **fields)


def compared(*rounds: dict[str, Reading]) -> list[dict[str, Any]]:
    """Return the rows of versions ``f`` and ``g`` after readings at intervals of one second."""
    comparison = Comparison("f", {"g": 20.0}, 0.0, 1000.0)
    pasts = {name: History(Reserved(PRICES), 600) for name in ("f", "g")}
    for second, readings in enumerate(rounds):
        for name, reading in readings.items():
            pasts[name].note(reading, float(second), 1000.0 + second)
        comparison.note(readings, pasts, float(second))
    assert 1000.0 == comparison.to_dict()["since_s"]
    rows: list[dict[str, Any]] = comparison.to_dict()["versions"]
    return rows


def test_comparison_covers_requests_since_it_began() -> None:
    """Counts, quantiles and cost cover only what happened since the comparison began."""
    outcomes = {"done": 580, "late": 540, "failed": 3, "expired": 2, "refused": 15}
    latency = {bin_of(5.0): 500, bin_of(0.02): 90, bin_of(0.2): 6, bin_of(2.0): 4}
    later = read(outcomes=outcomes, latency=latency)
    stable, canary = compared(
        {"f": read(**OLD), "g": read()}, {"f": read(**OLD), "g": read()}, {"f": later, "g": read()}
    )
    assert ("f", 80.0, "g", 20.0) == (
        stable["name"],
        stable["percent"],
        canary["name"],
        canary["percent"],
    )
    assert (100, 50.0, 40, 15, 5) == tuple(
        stable[key] for key in ("requests", "rate_rps", "late", "refused", "errors")
    )
    assert [0.02, 0.2, 2.0] == pytest.approx(
        [stable[key] for key in ("p50_s", "p95_s", "p99_s")], rel=0.1
    )
    assert (2.0, 4.0) == (stable["cost"], stable["core_s"])  # two seconds of two cores
    assert (0, None, 2.0) == (canary["requests"], canary["p99_s"], canary["cost"])


def test_a_version_that_is_not_scaled_is_not_measured() -> None:
    """A version that is not scaled is not measured, as its sidecars report to no scaler."""
    _, canary = compared({"f": read()}, {"f": read(outcomes={"done": 1})})
    assert {"name": "g", "percent": 20.0, "measured": False} == canary


def test_version_is_compared_again_after_its_counters_restart() -> None:
    """A version whose counters restart is compared from then on."""
    done = read(outcomes={"done": 9})
    stable, _ = compared({"f": read()}, {"f": done}, {"f": read()}, {"f": done})
    assert (9, 9.0, 1.0) == (stable["requests"], stable["rate_rps"], stable["cost"])


@with_scaler
async def test_comparison_restarts_when_shares_change(caller: Caller) -> None:
    """The comparison restarts when the shares change, and ends when they are removed."""

    def observe(shares: str) -> None:
        labels = {**LABELS, **({"com.carpool.canary": shares} if shares else {})}
        echo = Status.of({"name": "echo", "image": "x", "replicas": 1, "labels": labels})
        new = Status.of({"name": "new", "image": "x", "replicas": 1, "labels": LABELS})
        caller.functions.observe({**LISTED, "echo": echo, "new": new})
        caller.sampler.sample()

    async def rows() -> list[tuple[str, float, int]]:
        _, found = await caller.get("/v1/history/echo")
        versions = (found["comparison"] or {"versions": []})["versions"]
        return [(each["name"], each["percent"], each["requests"]) for each in versions]

    observe("new=25%")
    line = ClassReport("first", batches=1, item_count=8, exec_s=0.2)
    said = structs.replace(REPORT, classes=(line,), outcomes={"done": 8}, latency={50: 8})
    assert 200 == (await caller.say(said)).status
    caller.sampler.sample()
    assert [("echo", 75.0, 8), ("new", 25.0, 0)] == await rows()
    observe("new=50%")
    caller.functions.listings += 1  # what is published is no older than that
    assert [("echo", 50.0, 0), ("new", 50.0, 0)] == await rows()
    observe("")
    caller.functions.listings += 1
    assert [] == await rows()


@with_scaler
async def test_versions_command(caller: Caller) -> None:
    """``versions`` prints a table or JSON, and fails for a function without canaries."""

    def said(*argv: str) -> str:
        text = io.StringIO()
        with tempfile.NamedTemporaryFile("w") as token, contextlib.redirect_stdout(text):
            token.write(TOKEN)
            token.flush()
            asked = ["versions", *argv, "--url", f"http://{caller.address}"]
            assert 0 == main([*asked, "--token-file", token.name])
        return text.getvalue()

    labels = {**LABELS, "com.carpool.canary": "plain=20%"}
    echo = Status.of({"name": "echo", "image": "x", "replicas": 1, "labels": labels})
    caller.functions.observe({**LISTED, "echo": echo})
    caller.sampler.sample()
    line = ClassReport("first", batches=1, item_count=8, exec_s=0.2)
    outcomes = {"done": 8, "late": 2, "refused": 2}
    report = structs.replace(REPORT, classes=(line,), outcomes=outcomes, latency={bin_of(0.02): 8})
    assert 200 == (await caller.say(report)).status
    caller.sampler.sample()
    head, stable, canary, since = (await asyncio.to_thread(said, "echo")).splitlines()
    assert ["FUNCTION", "SHARE", "REQUESTS"] == head.split()[:3]
    assert ["echo", "80%", "10"] == stable.split()[:3]
    assert ["20.00%", "20.00%", "0.00%"] == stable.split()[-4:-1]
    assert ["plain", "20%", "not", "scaled"] == canary.split()[:4]
    assert since.startswith("since ")
    versions = json.loads(await asyncio.to_thread(said, "echo", "--json"))["versions"]
    assert [("echo", 10), ("plain", None)] == [(v["name"], v.get("requests")) for v in versions]
    caller.functions.observe(LISTED)
    caller.sampler.sample()
    caller.functions.listings += 1
    with pytest.raises(CarpoolError, match="echo has no canaries: its label com"):
        await asyncio.to_thread(said, "echo")
