"""A front whose plan has model variants, with two instances and a scripted scaler."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from carpool.plan import InstanceClass, OnOffer, Plan, Route
from carpool.sync import SyncAnswer
from tests.sidecar.runtime.conftest import on_loop
from tests.sidecar.runtime.test_sync import scaler, sidecar, version_of
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from pathlib import Path

    from carpool.http.client import Response
    from tests.sidecar.runtime.conftest import Sidecar
    from tests.sidecar.runtime.test_sync import Scaler

SMALL = InstanceClass("small-b4", 1, 4, 1, "small")
LARGE = InstanceClass("large-b4", 1, 4, 1, "large")
OFFERS = (
    OnOffer("small-b4", "small", 0.7, 2.0, 1.0, 0.5),
    OnOffer("large-b4", "large", 0.8, 4.0, 2.0, 30.0),
    OnOffer("huge-b1", "huge", 0.95, 8.0, 9.0, 60.0),
)
PLAN = Plan(
    "echo",
    1,
    "infaas",
    (SMALL, LARGE),
    (Route("*", {"small-b4": 1.0}, 0.0),),
    variants=OFFERS,
)


async def ask(front: Sidecar, target: str = "/", **demand: str) -> Response:
    """Send one request with this demand."""
    headers = [(f"x-carpool-{name}", text) for name, text in demand.items()]
    return await front.ask("ok", *headers, target=target)


async def variant(front: Sidecar, target: str = "/", **demand: str) -> str:
    """Return the variant that answered a request with this demand."""
    answer = await ask(front, target, **demand)
    assert 200 == answer.status, answer.body
    return (answer.header(b"x-carpool-variant") or b"").decode()


def follow(scripted: Scaler, folder: Path, conditions: dict[str, str]) -> None:
    """Answer every report with the plan and these instance conditions."""
    instances = {"small-b4": (f"unix:{folder}/small",), "large-b4": (f"unix:{folder}/large",)}
    scripted.answer = SyncAnswer(0.05, "e:1", PLAN, instances, conditions)


@pytest.mark.slow
@on_loop
async def test_requests_get_fitting_variant_that_is_not_overloaded(tmp_path: Path) -> None:
    """Demands get a fitting instance that is not overloaded, and unfit ones are refused at once."""
    async with (
        scaler(tmp_path) as (scripted, _),
        sidecar(tmp_path, "small", sidecar_class="small-b4") as small,
        sidecar(tmp_path, "large", sidecar_class="large-b4") as large,
        sidecar(tmp_path, "front") as front,
    ):
        early = await ask(front, accuracy="0.5")
        assert (503, b"no plan with variants yet" in early.body) == (early.status, True)
        await small.until_ready()
        await large.until_ready()
        follow(scripted, tmp_path, {})
        await wait_until_async(lambda: version_of(scripted) == 1, what="followed")
        await front.until_ready()

        assert "small" == await variant(front)
        assert "small" == await variant(front, latency="5s")
        assert "large" == await variant(front, accuracy="0.75")
        assert "large" == await variant(front, variant="large")
        versioned = "/v2/models/echo/versions/large/infer"
        assert "large" == await variant(front, versioned)

        never = await ask(front, accuracy="0.99")
        assert 422 == never.status
        assert "the closest is huge-b1 (accuracy 0.95" in json.loads(never.body)["error"]
        later = await ask(front, accuracy="0.9", latency="20s")
        assert 503 == later.status
        assert b"60" == later.header(b"retry-after")
        assert b"huge-b1" in later.body
        assert 404 == (await ask(front, variant="lage")).status
        assert 422 == (await ask(front, variant="small", accuracy="0.8")).status
        assert (
            422 == (await ask(front, "/v2/models/echo/versions/small/infer", accuracy="0.8")).status
        )
        assert 400 == (await ask(front, versioned, variant="small")).status

        follow(scripted, tmp_path, {f"unix:{tmp_path}/small": "overloaded"})
        before = len(scripted.reports)
        await wait_until_async(lambda: len(scripted.reports) > before + 2, what="told")
        assert "large" == await variant(front, latency="5s")
        assert "small" == await variant(front), "routes of applications are followed all the same"
        follow(scripted, tmp_path, {})
        before = len(scripted.reports)
        await wait_until_async(lambda: len(scripted.reports) > before + 2, what="told")
        assert "small" == await variant(front, latency="5s")

        counted = {app.name for report in scripted.reports for app in report.apps}
        assert {"*", "variant=large", "latency=5"} <= counted
        items = sum(
            i.item_count for r in scripted.reports for i in r.instances if "large" in i.address
        )
        assert 4 == items
        assert 7 == await front.metric('batch_refusals_total{reason="unfit"}')
        assert 10 == await front.metric("batch_selection_seconds_count")


@on_loop
async def test_accuracy_demand_is_refused_without_variants(tmp_path: Path) -> None:
    """Without variants a latency is the deadline; other demands are refused and counted."""
    async with sidecar(tmp_path, "alone", sidecar_scaler="") as alone:
        await alone.until_ready()
        assert 200 == (await ask(alone, latency="5s")).status
        refused = await ask(alone, accuracy="0.5")
        assert 422 == refused.status
        assert b"no variants to choose from" in refused.body
        assert 1 == await alone.metric('batch_refusals_total{reason="unfit"}')
        assert 1 == await alone.metric('batch_requests_total{state="refused"}')
