"""The gunicorn process of a scaler serves published data, is restarted, and ends with it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from carpool.http.client import ConnectionFailed, Pool
from scaler.web.server import WebProcess, socket_of
from scaler.web.snapshot import PastSamples, SnapshotFile
from tests.waiting import HANG_S, wait_until, wait_until_async

SCALER = """
import asyncio, pathlib, sys
from scaler.web.server import WebProcess

async def run():
    web = WebProcess(pathlib.Path(sys.argv[1]))
    await web.start()
    print(web.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(run())
"""


async def asked(pool: Pool, path: str) -> tuple[int, bytes]:
    """Return the response as soon as the process listens."""
    async with asyncio.timeout(HANG_S):
        while True:
            with suppress(ConnectionFailed):
                answer = await pool.request("GET", path)
                return answer.status, answer.body
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_web_process_is_restarted_without_loss(tmp_path: Path, number: int) -> None:
    """Published data are in the file, and a stopped process does not listen."""
    sample = json.dumps({"number": 7}).encode()
    documents = {"/v1/history/echo": b'{"last":7}', "/v1/functions": b'{"functions":[]}'}
    SnapshotFile(tmp_path).publish(documents, [PastSamples("echo", 1, {7: sample})])

    async def scene() -> None:
        web, pool = WebProcess(tmp_path), Pool(socket_of(tmp_path))
        await web.start()
        try:
            first = web.pid
            assert (200, b'{"functions":[]}\n') == await asked(pool, "/v1/functions")
            os.kill(first, number)
            await wait_until_async(lambda: web.pid not in (0, first), what="another one")
            status, body = await asked(pool, "/v1/history/echo?after=6")
            assert (200, {"last": 7, "samples": [{"number": 7}]}) == (status, json.loads(body))
        finally:
            await web.stop()
        assert 0 == web.pid
        with pytest.raises(ConnectionFailed):
            await pool.request("GET", "/v1/functions")
        pool.close()

    asyncio.run(scene())


def test_web_process_ends_with_killed_scaler(tmp_path: Path) -> None:
    """The kernel signals the end of the scaler, and the folder is removed."""
    folder = tmp_path / "web"
    folder.mkdir()
    command = [sys.executable, "-c", SCALER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as scaler:
        assert scaler.stdout is not None
        try:
            pid = int(scaler.stdout.readline())
            assert 200 == asyncio.run(_shown(folder))
        finally:
            scaler.kill()
    wait_until(lambda: not _runs(pid), what="its end")
    assert not folder.exists()


async def _shown(folder: Path) -> int:
    pool = Pool(socket_of(folder))
    try:
        return (await asked(pool, "/"))[0]
    finally:
        pool.close()


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
    except FileNotFoundError:
        return False
    return state.split()[0] != "Z"
