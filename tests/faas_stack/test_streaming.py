"""Tests of streams through OpenFaaS's gateway, provider, sidecars, of-watchdog and handler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carpool.http.client import Pool
from faas_stack.provider.local import network_namespace
from tests.gate import Gate
from tests.sidecar.runtime.conftest import on_loop
from tests.tools import require_tool
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("live")]

ROOT = Path(__file__).parents[2]
ACCEPT = ("accept", "text/event-stream")
HANDLER = """\
import fcntl, pathlib

def handle_batch(items):
    return ["batched" for _ in items]

def stream(item):
    word, path = item.bytes().decode().split()
    return gated(path) if word == "gated" else endless(path)

def gated(gate):
    yield "one"
    with open(gate) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
    yield "two"

def endless(closed):
    try:
        while True:
            yield "more"
    finally:
        pathlib.Path(closed).touch()
"""
STACK = {
    "provider": {"name": "openfaas"},
    "functions": {
        name: {
            "lang": "python3-batch",
            "handler": "./story",
            "image": f"{name}:latest",
            "labels": {"com.carpool.batch.max": "8", **labels},
        }
        for name, labels in (("story", {}), ("scaled", {"com.carpool.scale.policy": "openfaas"}))
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Folder with the sockets of a running stack."""
    gateway, _ = require_tool("gateway"), require_tool("fwatchdog")
    made = tmp_path_factory.mktemp("streaming")
    (made / "story").mkdir()
    (made / "story" / "handler.py").write_text(HANDLER)
    (made / "stack.yaml").write_text(json.dumps(STACK))
    service = ROOT / "tests" / "services" / "behind_gateway.py"
    process = subprocess.Popen(
        network_namespace.command((sys.executable, str(service), str(made), gateway)),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert "ready\n" == process.stdout.readline()
        yield made
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(HANG_S)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A closed gate."""
    made = Gate(tmp_path / "gate")
    yield made
    made.remove()


async def until(chunks: AsyncIterator[bytes], event: bytes) -> None:
    """Read until the data ends with ``event``."""
    data = b""
    while not data.endswith(event):
        data += await anext(chunks)


@pytest.mark.parametrize("function", ["story", "scaled"])
@pytest.mark.parametrize("door", ["provider", "gateway"])
def test_chunks_arrive_as_they_are_yielded(
    folder: Path, tmp_path: Path, gate: Gate, door: str, function: str
) -> None:
    """Chunks arrive as they are yielded, uncompressed, through all programs; others are batched.

    When a caller leaves, an endless generator ends.
    """
    headers = [ACCEPT, ("accept-encoding", "gzip")]
    target, closed = f"/function/{function}", tmp_path / "closed"

    @on_loop
    async def run() -> None:
        pool = Pool(f"unix:{folder}/{door}.sock")
        try:
            body = f"gated {gate.path}".encode()
            async with pool.stream("POST", target, headers, body) as answer:
                assert (200, None) == (answer.status, answer.header(b"content-encoding"))
                chunks = answer.chunks()
                await until(chunks, b"data: one\n\n")
                gate.open()
                await until(chunks, b"data: two\n\nevent: end\ndata:\n\n")
            assert b"batched" == (await pool.request("POST", target, (), b"x")).body
            body = f"endless {closed}".encode()
            async with pool.stream("POST", target, headers, body) as answer:
                await anext(answer.chunks())
            await wait_until_async(closed.exists, what="the generator's end")
        finally:
            pool.close()

    run()
