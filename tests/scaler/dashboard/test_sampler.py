"""The page's files and data over a real socket: for which callers, and what is in them."""

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
    """Status, text and headers."""
    headers = [("authorization", f"Bearer {token}")] if token else []
    answer = await caller.pool.request(method, path, headers, b"", HANG_S)
    found = {name.decode(): value.decode() for name, value in answer.headers}
    return answer.status, answer.body.decode(), found


@with_scaler
async def test_the_page_needs_no_token_and_has_no_secret(caller: Caller) -> None:
    """Files are the same for every client, and run only their own scripts."""
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
async def test_the_page_is_all_its_own(caller: Caller) -> None:
    """No address of another machine, no code in attributes, no markup made of data."""
    texts = {path: (await fetch(caller, "GET", path))[1] for path in FILES}
    outside = re.compile(r"(?:https?:)?//(?!www\.w3\.org/2000/svg)[\w.-]+\.\w+")
    assert [] == [found for text in texts.values() for found in outside.findall(text)]
    assert not re.search(r"\son\w+=|style=|javascript:", texts["/"])
    code = texts["/drawing.js"] + texts["/page.js"]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|\beval\b|document\.write", code)


@with_scaler
async def test_the_past_is_asked_for_with_the_token(caller: Caller) -> None:
    """It is of the API, and has the API's token."""
    assert 401 == (await fetch(caller, "GET", "/v1/history/echo"))[0]
    assert 401 == (await fetch(caller, "GET", "/v1/history/echo", "wrong"))[0]
    assert 200 == (await fetch(caller, "GET", "/v1/history/echo", TOKEN))[0]


@with_scaler
async def test_a_page_is_told_what_it_does_not_have(caller: Caller) -> None:
    """Each sample is told once to a reader that says what the last one was."""
    controller = caller.functions.find("echo")
    assert controller is not None
    controller.follow(controller.first_plan(), 0.0)
    caller.sampler.sample()
    line = ClassReport("first", batches=2, item_count=8, exec_s=0.2)
    said = structs.replace(
        REPORT,
        apps=(AppReport("*", 8),),
        classes=(line,),
        fates={"done": 8, "late": 2},
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
async def test_what_cannot_be_shown_is_said(caller: Caller) -> None:
    """An unknown function is 404, a number that is none 400."""
    assert 404 == (await caller.get("/v1/history/none"))[0]
    status, found = await caller.get("/v1/history/echo?after=yesterday")
    assert (400, True) == (status, "'yesterday'" in found["error"])
    assert 400 == (await caller.get(f"/v1/history/echo?after={'9' * 40}"))[0]


@with_scaler
async def test_memory_is_bounded_and_the_gone_are_forgotten(caller: Caller) -> None:
    """With many functions each has a shorter past; one that was removed has none."""
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
