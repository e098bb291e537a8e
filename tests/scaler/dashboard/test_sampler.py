"""The dashboard's files and data over a real socket: access and content."""

from __future__ import annotations

import re

import pytest
from msgspec import structs

from carpool.sync import AppReport, ClassReport
from scaler.control.class_function import Status
from scaler.dashboard import sampler
from scaler.dashboard.sampler import FILES
from tests.scaler.test_sync_api import LABELS, REPORT, TOKEN, Caller, with_scaler
from tests.waiting import HANG_S


async def fetch(
    caller: Caller, method: str, path: str, token: str = ""
) -> tuple[int, str, dict[str, str]]:
    """Send a request and return status, text and headers of the response."""
    headers = [("authorization", f"Bearer {token}")] if token else []
    answer = await caller.pool.request(method, path, headers, b"", HANG_S)
    found = {name.decode(): value.decode() for name, value in answer.headers}
    return answer.status, answer.body.decode(), found


@with_scaler
async def test_the_page_needs_no_token_and_has_no_secret(caller: Caller) -> None:
    """The files need no token, contain none, and run only their own scripts."""
    for path in FILES:
        status, text, headers = await fetch(caller, "GET", path)
        assert 200 == status
        assert TOKEN not in text
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "nosniff" == headers["x-content-type-options"]
    assert (200, "") == (await fetch(caller, "HEAD", "/"))[:2]
    assert 405 == (await fetch(caller, "POST", "/"))[0]


@with_scaler
async def test_page_is_self_contained(caller: Caller) -> None:
    """The page has no external addresses, no code in attributes and no markup made from data."""
    texts = {path: (await fetch(caller, "GET", path))[1] for path in FILES}
    outside = re.compile(r"(?:https?:)?//(?!www\.w3\.org/2000/svg)[\w.-]+\.\w+")
    assert [] == [found for text in texts.values() for found in outside.findall(text)]
    assert not re.search(r"\son\w+=|style=|javascript:", texts["/"])
    code = texts["/tip.js"] + texts["/drawing.js"] + texts["/page.js"]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|\beval\b|document\.write", code)


@with_scaler
async def test_history_needs_token(caller: Caller) -> None:
    """The history is part of the API and needs its token."""
    assert 401 == (await fetch(caller, "GET", "/v1/history/echo"))[0]
    assert 401 == (await fetch(caller, "GET", "/v1/history/echo", "wrong"))[0]
    assert 200 == (await fetch(caller, "GET", "/v1/history/echo", TOKEN))[0]


@with_scaler
async def test_page_gets_only_later_samples(caller: Caller) -> None:
    """A reader that names its last sample gets only later ones."""
    controller = caller.functions.find("echo")
    assert controller is not None
    controller.follow(controller.first_plan(), 0.0)
    caller.sampler.sample()
    line = ClassReport("first", batches=2, item_count=8, exec_s=0.2)
    said = structs.replace(
        REPORT,
        apps=(AppReport("*", 8),),
        classes=(line,),
        outcomes={"done": 8, "late": 2},
        latency={50: 8},
    )
    assert 200 == (await caller.say(said)).status
    caller.sampler.sample()
    caller.sampler.sample()
    status, found = await caller.get("/v1/history/echo?after=0")
    assert (200, 2, [1, 2]) == (status, found["last"], [s["number"] for s in found["samples"]])
    assert (4.0, 0.25) == tuple(found["samples"][0][k] for k in ("mean_batch", "miss_ratio"))
    assert found["samples"][0]["p99_s"] > 0.1
    assert found["samples"][1]["mean_batch"] is None
    assert (0.2, 0.99, False) == (found["slo_s"], found["percentile"], found["priced"])
    assert found["shadow"] is None
    _, later = await caller.get("/v1/history/echo?after=1")
    assert [2] == [sample["number"] for sample in later["samples"]]


@with_scaler
async def test_invalid_history_requests_are_refused(caller: Caller) -> None:
    """An unknown function is answered with 404, an invalid number with 400."""
    assert 404 == (await caller.get("/v1/history/none"))[0]
    status, found = await caller.get("/v1/history/echo?after=yesterday")
    assert (400, True) == (status, "'yesterday'" in found["error"])
    assert 400 == (await caller.get(f"/v1/history/echo?after={'9' * 40}"))[0]


@with_scaler
async def test_history_memory_is_bounded_and_removed_functions_are_dropped(caller: Caller) -> None:
    """With many functions each has a shorter history, and a removed function has none."""
    names = [f"f{number}" for number in range(30)]
    many = {
        name: Status.of({"name": name, "image": "x", "replicas": 1, "labels": LABELS})
        for name in names
    }
    caller.functions.observe(many)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampler, "_MOST_IN_ALL", 200 * len(names))
        for _ in range(230):
            caller.sampler.sample()
    _, found = await caller.get("/v1/history/f7")
    assert (229, 200) == (found["last"], len(found["samples"]))
    caller.functions.observe({"f7": many["f7"]})
    caller.sampler.sample()
    caller.functions.observe(many)
    _, found = await caller.get("/v1/history/f8")
    assert [] == found["samples"]


@with_scaler
async def test_rate_is_shown_between_reports_that_are_far_apart(caller: Caller) -> None:
    """A rate is not unknown while the next report is not due, if sidecars report seldom."""
    functions = caller.functions
    controller = functions.find("echo")
    assert controller is not None
    functions.reported(controller, REPORT)
    controller.reports.interval_s = 10.0
    later_s = functions.now() + 8.0
    functions.now = lambda: later_s
    _, found = await caller.get("/v1/functions/echo")
    assert {"*": 10.0} == found["rates_rps"]
    assert 10.0 == found["rate_rps"]
