"""Tests that the scaler of ``carpool up`` keeps running, even if killed or with a full disk."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import uvloop

from faas_stack.stack.scaler_process import ScalerFailed, ScalerProcess, ScalerProcessOptions
from scaler.stack_folder import URL_FILE
from tests.waiting import HANG_S, wait_until_async

if TYPE_CHECKING:
    from pathlib import Path


def options_in(folder: Path) -> ScalerProcessOptions:
    """Return the options of a scaler whose gateway does not exist yet."""
    (folder / "token").write_text("t" * 32)
    (folder / "run").mkdir()
    flags = ("--store", str(folder / "store.db"))
    return ScalerProcessOptions(
        "http://127.0.0.1:9", folder / "run", folder, folder / "token", 0, flags
    )


@pytest.mark.slow
def test_scaler_runs_if_its_address_cannot_be_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """If its address cannot be written, as on a full disk, the scaler runs and is restarted."""
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
def test_json_log_is_forwarded_and_gives_address(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A JSON log is forwarded unchanged and still gives the scaler's address."""
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
def test_tcp_address_option_replaces_port(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], given: tuple[str, ...], count: int
) -> None:
    """A given TCP address replaces the port; a socket is added, as browsers cannot open it."""
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


def test_address_for_syncs_is_not_that_for_users(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An address for sidecars only, which the scaler names last, replaces neither URL nor port."""
    options = options_in(tmp_path)
    flags = (*options.flags, "--listen-sync", "127.0.0.1:0")
    said: list[str] = []

    async def run() -> str:
        scaler = ScalerProcess(replace(options, flags=flags))
        try:
            await scaler.start()
            await wait_until_async(lambda: _told(capfd, said, " for syncs"))
            return scaler.url
        finally:
            await scaler.stop()

    url = uvloop.run(run())
    assert f"listening on {url[7:]}\n" in "".join(said)
    assert f"{url}\n" == (tmp_path / URL_FILE).read_text()


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (("--listen", "nowhere"), ""),
        (("--window", "never"), r" \(its --listen is --scaler-port of carpool up\)"),
    ],
)
def test_invalid_options_error_refers_to_output(
    tmp_path: Path, given: tuple[str, ...], hint: str
) -> None:
    """The error for invalid options refers to the output, and to the port if that is used."""
    options = options_in(tmp_path)
    scaler = ScalerProcess(replace(options, flags=(*options.flags, *given)))
    with pytest.raises(ScalerFailed, match=rf"its output is above{hint}$"):
        uvloop.run(scaler.start())


def test_failed_first_start_is_an_error(tmp_path: Path) -> None:
    """A scaler that cannot start the first time is an error with the reason."""
    options = options_in(tmp_path)
    (tmp_path / "run" / "scaler-tmp").touch()
    with pytest.raises(ScalerFailed, match=r"the scaler cannot be started: .*scaler-tmp"):
        uvloop.run(ScalerProcess(options).start())


def test_end_before_it_listens_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scaler that ends with a traceback before it listens is an error, and is not restarted."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "uvloop.py").write_text("raise RuntimeError('a damaged package')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    scaler = ScalerProcess(options_in(tmp_path))

    async def run() -> None:
        try:
            await asyncio.wait_for(scaler.start(), HANG_S)
        finally:
            await scaler.stop()

    said = r"the scaler ended with status 1 before it listened; its output is above$"
    with pytest.raises(ScalerFailed, match=said):
        uvloop.run(run())
