"""Readers and the loop: however many ask, it is one round a second; what they see is whole."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson

from scaler.web.snapshot import PastSamples, Snapshot
from tests.scaler.test_sync_api import LISTED, TOKEN, Caller, scaler, with_scaler

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Counted(Snapshot):
    """Counts what is published."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.published = 0

    def publish(self, *args: Any) -> None:
        """Write, and count."""
        self.published += 1
        super().publish(*args)


def test_many_readers_are_one_round(tmp_path: Path) -> None:
    """A hundred at once, and then another hundred, cost the loop what one does."""
    snapshot = Counted(tmp_path)

    async def scene() -> None:
        async with scaler(tmp_path, snapshot=snapshot, every_s=3600.0) as caller:
            for _ in range(2):
                found = await asyncio.gather(*(caller.get("/v1/functions") for _ in range(100)))
                assert {200} == {status for status, _ in found}
        assert 1 == snapshot.published

    asyncio.run(scene())


def test_a_function_that_came_or_went_is_seen_at_once(tmp_path: Path) -> None:
    """However new the last snapshot is, and while one without it is being written."""

    async def scene() -> None:
        async with scaler(tmp_path, listed=False, every_s=3600.0) as caller:
            for listed, status in (({}, 404), (LISTED, 200), ({}, 404), (LISTED, 200)):
                before = asyncio.ensure_future(caller.get("/v1/functions"))
                await asyncio.sleep(0)
                caller.functions.observe(listed)
                assert status == (await caller.get("/v1/functions/echo"))[0]
                await before

    asyncio.run(scene())


class Failing(Snapshot):
    """Cannot be written the second time, as on a disk that is full for a while."""

    rounds = 0

    def publish(self, *args: Any) -> None:
        """Write, or fail."""
        self.rounds += 1
        if self.rounds == 2:
            raise OSError(28, "No space left on device")
        super().publish(*args)


def test_samples_survive_a_snapshot_that_fails(tmp_path: Path) -> None:
    """Readers are told; what could not be written then is, with the next one."""

    async def scene() -> None:
        async with scaler(tmp_path, snapshot=Failing(tmp_path)) as caller:
            found: Any = None
            for expected in (200, 500, 200):
                caller.sampler.sample()
                status, found = await caller.get("/v1/history/echo")
                assert expected == status
            assert [1, 2] == [sample["number"] for sample in found["samples"]]

    asyncio.run(scene())


@with_scaler
async def test_a_reader_sees_what_was_when_it_asked(caller: Caller) -> None:
    """The first one to ask waits for a snapshot, and needs not ask twice."""
    _, before = await caller.get("/v1/functions/echo")
    controller = caller.functions.find("echo")
    assert controller is not None
    controller.follow(controller.first_plan(), 0.0)
    _, after = await caller.get("/v1/functions/echo")
    assert (None, "first") == (before["plan"], after["plan"]["classes"][0]["name"])
    assert ["at_s", "text"] == sorted(after["decisions"][-1])


@with_scaler
async def test_paths_are_judged_and_asked_for_alike(caller: Caller) -> None:
    """A path that is written differently is not one of the page's files."""
    headers = [("authorization", f"Bearer {TOKEN}")]
    assert 401 == (await caller.pool.request("GET", "//")).status
    for target in ("/%2e/", "/page.css/", "/v1/functions/echo%2F..", "/v1/functions/%00"):
        bare = await caller.pool.request("GET", target)
        shown = await caller.pool.request("GET", target, headers)
        assert (401, 404) == (bare.status, shown.status), target
    for query in ("after=%E4", "after=\xe4", "after=1&after=x y".replace(" ", "%20")):
        odd = await caller.pool.request("GET", f"/v1/history/echo?{query}", headers)
        assert 400 == odd.status, query
    spelt = await caller.pool.request("GET", "/v1/functions/%65cho", headers)
    assert 200 == spelt.status


def test_a_web_process_that_is_away_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers are told to try again; sidecars and health checks notice nothing."""
    monkeypatch.setattr("scaler.web.server._PATIENCE_S", 0.01)

    async def scene() -> None:
        async with scaler(tmp_path, serves=False) as caller:
            headers = [("authorization", f"Bearer {TOKEN}")]
            answer = await caller.pool.request("GET", "/v1/functions", headers)
            assert (503, b"1") == (answer.status, answer.header(b"retry-after"))
            assert b"does not answer" in answer.body
            assert 200 == (await caller.pool.request("GET", "/healthz")).status

    asyncio.run(scene())


def test_a_function_that_counts_anew_has_no_old_samples(tmp_path: Path) -> None:
    """What has gone is gone from the file, and what is too old."""
    snapshot = Snapshot(tmp_path)
    samples = {number: b"%d" % number for number in range(1, 6)}
    snapshot.publish(
        {"/a": b"1"}, [PastSamples("echo", 3, samples), PastSamples("gone", 1, samples)]
    )
    assert b"[3,4,5]" == orjson.dumps(snapshot.samples("echo", 0))
    snapshot.forget("echo")
    snapshot.publish({"/b": b"2"}, [PastSamples("echo", 1, {1: b"new"})])
    assert 1 == len(snapshot.samples("echo", 0))
    assert [] == snapshot.samples("gone", 0)
    assert (None, b"2") == (snapshot.document("/a"), snapshot.document("/b"))
