"""The scaler of ``carpool up`` is kept running, whatever becomes of it and of the disk."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import uvloop

from faas_stack.stack.scaler_process import ScalerFailed, ScalerOptions, ScalerProcess
from scaler.stack_folder import URL_FILE
from tests.waiting import wait_until_async

if TYPE_CHECKING:
    from pathlib import Path


def options_in(folder: Path) -> ScalerOptions:
    """A scaler whose gateway is not there yet."""
    (folder / "token").write_text("t" * 32)
    (folder / "run").mkdir()
    flags = ("--store", str(folder / "store.db"))
    return ScalerOptions("http://127.0.0.1:9", folder / "run", folder, folder / "token", 0, flags)


@pytest.mark.slow
def test_it_lasts_though_its_address_cannot_be_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As on a disk that is full; killed, it is started again there, too."""
    (tmp_path / URL_FILE).mkdir(parents=True)

    async def run() -> None:
        scaler = ScalerProcess(options_in(tmp_path))
        try:
            await scaler.start()
            first, url = scaler.pid, scaler.url
            (tmp_path / "run" / "scaler-tmp").rename(tmp_path / "run" / "was")
            (tmp_path / "run" / "scaler-tmp").touch()  # nor can its folder be made
            said: list[str] = []
            capfd.readouterr()
            os.kill(first, signal.SIGKILL)
            await wait_until_async(lambda: _told(capfd, said, "cannot be started"))
            (tmp_path / "run" / "scaler-tmp").unlink()
            await wait_until_async(lambda: _told(capfd, said, f"listening on {url[7:]}"))
            assert scaler.pid not in (0, first)
        finally:
            await scaler.stop()

    uvloop.run(run())


def _told(capfd: pytest.CaptureFixture[str], said: list[str], text: str) -> bool:
    said.append(capfd.readouterr().err)
    return text in "".join(said)


@pytest.mark.slow
def test_its_log_may_be_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its lines are passed on as they are, and still tell where it listens."""
    given = options_in(tmp_path)

    async def run() -> str:
        flags = (*given.flags, "--log-format", "json")
        scaler = ScalerProcess(replace(given, flags=flags))
        try:
            await scaler.start()
            return scaler.url.removeprefix("http://")
        finally:
            await scaler.stop()

    address = uvloop.run(run())
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert {"scaler"} == {line["part"] for line in lines}
    assert f"listening on {address}" in {line["message"] for line in lines}


@pytest.mark.parametrize(
    ("given", "count"),
    [(("--listen", "127.0.0.1:0"), 1), (("--listen=127.0.0.1:0",), 1), (("--listen", "unix:s"), 2)],
)
def test_an_address_among_its_options_replaces_the_port(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], given: tuple[str, ...], count: int
) -> None:
    """Unless it is a socket, which users cannot open in a browser."""
    options = options_in(tmp_path)

    async def run() -> str:
        scaler = ScalerProcess(replace(options, flags=(*options.flags, *given)))
        try:
            await scaler.start()
            return scaler.url
        finally:
            await scaler.stop()

    url = uvloop.run(run())
    said = capfd.readouterr().err
    assert f"listening on {url[7:]}" in said
    assert 1 + count == said.count("listening on ")


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (("--listen", "nowhere"), ""),
        (("--window", "never"), r" \(its --listen is --scaler-port of carpool up\)"),
    ],
)
def test_options_that_cannot_be_used_are_found_in_its_output(
    tmp_path: Path, given: tuple[str, ...], hint: str
) -> None:
    """The port of ``up`` is named where the address is not the user's own."""
    options = options_in(tmp_path)
    scaler = ScalerProcess(replace(options, flags=(*options.flags, *given)))
    with pytest.raises(ScalerFailed, match=rf"its output is above{hint}$"):
        uvloop.run(scaler.start())


def test_it_must_start_once(tmp_path: Path) -> None:
    """If it cannot at first, the user is told why, and waits for nothing."""
    options = options_in(tmp_path)
    (tmp_path / "run" / "scaler-tmp").touch()
    with pytest.raises(ScalerFailed, match=r"the scaler cannot be started: .*scaler-tmp"):
        uvloop.run(ScalerProcess(options).start())
