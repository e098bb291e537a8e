"""At most one snapshot per second serves all readers, who see consistent data."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import orjson

from scaler.web.documents import Documents
from scaler.web.snapshot import PastSamples, SnapshotFile
from tests.scaler.test_sync_api import LISTED, TOKEN, Caller, scaler, with_scaler

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


class Counted(SnapshotFile):
    """Snapshot that counts how often it is published."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.published = 0

    def publish(self, *args: Any) -> None:
        """Write the snapshot and count it."""
        self.published += 1
        super().publish(*args)


def test_concurrent_readers_share_one_snapshot(tmp_path: Path) -> None:
    """Two times a hundred concurrent readers cost the loop one snapshot."""
    snapshot = Counted(tmp_path)

    async def scene() -> None:
        async with scaler(tmp_path, snapshot=snapshot, every_s=3600.0) as caller:
            for _ in range(2):
                found = await asyncio.gather(*(caller.get("/v1/functions") for _ in range(100)))
                assert {200} == {status for status, _ in found}
        assert 1 == snapshot.published

    asyncio.run(scene())


def test_added_or_removed_function_replaces_snapshot_at_once(tmp_path: Path) -> None:
    """A snapshot is replaced even if it is recent or still being written."""

    async def scene() -> None:
        async with scaler(tmp_path, listed=False, every_s=3600.0) as caller:
            for listed, status in (({}, 404), (LISTED, 200), ({}, 404), (LISTED, 200)):
                before = asyncio.ensure_future(caller.get("/v1/functions"))
                await asyncio.sleep(0)
                caller.functions.observe(listed)
                assert status == (await caller.get("/v1/functions/echo"))[0]
                await before

    asyncio.run(scene())


class Failing(SnapshotFile):
    """Snapshot whose second publication fails, as if the disk were full for a while."""

    rounds = 0

    def publish(self, *args: Any) -> None:
        """Write the snapshot, or raise OSError the second time."""
        self.rounds += 1
        if self.rounds == 2:
            raise OSError(28, "No space left on device")
        super().publish(*args)


def test_samples_survive_a_snapshot_that_fails(tmp_path: Path) -> None:
    """Readers get an error, and the next snapshot has the missing samples."""

    async def scene() -> None:
        async with scaler(tmp_path, snapshot=Failing(tmp_path)) as caller:
            found: Any = None
            for expected in (200, 500, 200):
                caller.sampler.sample()
                status, found = await caller.get("/v1/history/echo")
                assert expected == status
            assert [1, 2] == [sample["number"] for sample in found["samples"]]

    asyncio.run(scene())


def test_samples_survive_a_document_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers get an error, and the next snapshot has the samples of the one that failed."""
    overview, calls = Documents.overview, itertools.count(1)

    def failing(documents: Documents, lines: list[dict[str, Any]]) -> dict[str, Any]:
        if next(calls) == 2:
            message = "dictionary changed size during iteration"
            raise RuntimeError(message)
        return overview(documents, lines)

    monkeypatch.setattr(Documents, "overview", failing)

    async def scene() -> None:
        async with scaler(tmp_path) as caller:
            found: Any = None
            for expected in (200, 500, 200):
                caller.sampler.sample()
                status, found = await caller.get("/v1/history/echo")
                assert expected == status
            assert [1, 2] == [sample["number"] for sample in found["samples"]]

    asyncio.run(scene())


@with_scaler
async def test_reader_waits_for_current_snapshot(caller: Caller) -> None:
    """A reader waits for a new snapshot and need not ask twice."""
    _, before = await caller.get("/v1/functions/echo")
    controller = caller.functions.find("echo")
    assert controller is not None
    controller.follow(controller.first_plan(), 0.0)
    _, after = await caller.get("/v1/functions/echo")
    assert (None, "first") == (before["plan"], after["plan"]["classes"][0]["name"])
    assert after["sidecar_config"] is None  # no front has asked yet
    assert ["at_s", "text"] == sorted(after["decisions"][-1])


@with_scaler
async def test_path_spelling_does_not_bypass_authorization(caller: Caller) -> None:
    """A path in another spelling is not served as a file of the page."""
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


def test_readers_get_503_without_web_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers get a 503 with Retry-After; health checks are answered as usual."""
    monkeypatch.setattr("scaler.web.server._PATIENCE_S", 0.01)

    async def scene() -> None:
        async with scaler(tmp_path, serves=False) as caller:
            headers = [("authorization", f"Bearer {TOKEN}")]
            answer = await caller.pool.request("GET", "/v1/functions", headers)
            assert (503, b"1") == (answer.status, answer.header(b"retry-after"))
            assert b"does not answer" in answer.body
            assert 200 == (await caller.pool.request("GET", "/healthz")).status

    asyncio.run(scene())


def test_outdated_samples_are_deleted(tmp_path: Path) -> None:
    """Samples that are too old and those of removed functions are deleted from the file."""
    snapshot = SnapshotFile(tmp_path)
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
