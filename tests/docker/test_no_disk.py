"""A full disk: nothing is lost or left behind, and the message says so."""

from __future__ import annotations

import contextlib
import errno
import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from faas_stack.provider.local.journal import Journal
from tests.docker.stage import DockerStage
from tests.docker.test_backend import containers, stack_of
from tests.faas_stack.rig import IMAGE, Rig, story

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.usefixtures("docker_images")]
STAGE = DockerStage()
REASON = "No space left on device; nothing was changed"
KEY = {"name": "key", "value": "word"}


class SmallDisk:
    """A disk of 64 KiB."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "more" / "filler"
        self._filler.parent.mkdir()

    def fill(self) -> None:
        """Use all free space."""
        with self._filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(b"x" * 4096)
        another = self._filler.with_name("another")
        with pytest.raises(OSError, match="No space") as full:
            another.write_bytes(b"x")
        assert errno.ENOSPC == full.value.errno
        another.unlink()

    def free(self) -> None:
        """Free the space again."""
        self._filler.unlink()


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """Yield a small disk at a folder."""
    folder.mkdir()
    mounted = ("mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder))
    if subprocess.run(mounted, check=False, capture_output=True).returncode:
        pytest.skip("cannot mount a small disk here")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(("umount", str(folder)), check=True)


async def nothing_is_there(rig: Rig) -> None:
    """Check that there is no function, no container, and no file to mount."""
    assert b"[]" == (await rig.call("GET", "/system/functions")).body
    assert [] == containers(stack_of(rig))
    assert [] == list((rig.folder / "state").glob("mounts/*"))


def test_full_disk_refuses_function_with_507(tmp_path: Path) -> None:
    """A new function gets 507 with the reason; an update or scaling changes nothing."""
    with small_disk(tmp_path / "journal") as disk:

        @story(STAGE, journal=Journal(disk.folder))
        async def play(rig: Rig) -> None:
            disk.fill()
            document = {"service": "fn", "image": IMAGE}
            answer = await rig.call("POST", "/system/functions", document)
            assert (507, True) == (answer.status, REASON in answer.body.decode())
            await nothing_is_there(rig)
            disk.free()
            await rig.deploy("fn")
            disk.fill()
            update = {**document, "labels": {"topic": "cats"}}
            assert 507 == (await rig.call("PUT", "/system/functions", update)).status
            scale = "/system/scale-function/fn"
            assert 507 == (await rig.call("POST", scale, {"replicas": 2})).status
            found = json.loads((await rig.call("GET", "/system/function/fn")).body)
            assert ({}, 1) == (found["labels"], found["replicas"])
            assert 200 == (await rig.call("GET", "/function/fn")).status

        play(tmp_path)


def test_full_disk_refuses_secret_with_507(tmp_path: Path) -> None:
    """The answer is 507, and existing secrets keep their values."""
    with small_disk(tmp_path / "secrets") as disk:

        @story(STAGE)
        async def play(rig: Rig) -> None:
            assert 202 == (await rig.call("POST", "/system/secrets", KEY)).status
            disk.fill()
            for method, document in (
                ("POST", {"name": "other", "value": "x"}),
                ("PUT", {"name": "key", "value": "new"}),
            ):
                answer = await rig.call(method, "/system/secrets", document)
                assert (507, True) == (answer.status, REASON in answer.body.decode())
            listed = json.loads((await rig.call("GET", "/system/secrets")).body)
            assert ["key"] == [secret["name"] for secret in listed]
            await rig.deploy("fn", secrets=["key"])
            seen = json.loads((await rig.call("GET", "/function/fn")).body)["secrets"]
            assert {"key": "word"} == seen

        play(tmp_path)


def test_full_disk_prevents_start_with_reason(tmp_path: Path) -> None:
    """A new function with secrets gets 507; an existing one says why it cannot start."""
    with small_disk(tmp_path / "state") as disk:

        @story(STAGE, patience_s=3.0)
        async def play(rig: Rig) -> None:
            assert 202 == (await rig.call("POST", "/system/secrets", KEY)).status
            document = {"service": "fn", "image": IMAGE, "secrets": ["key"]}
            disk.fill()
            answer = await rig.call("POST", "/system/functions", document)
            assert (507, True) == (answer.status, REASON in answer.body.decode())
            await nothing_is_there(rig)
            disk.free()
            await rig.deploy(
                "fn", secrets=["key"], labels={"com.carpool.scale.min": "0"}, ready=False
            )
            disk.fill()
            answer = await rig.call("GET", "/function/fn")
            assert 503 == answer.status
            said = await rig.told("fn", "No space left on device")
            assert said.startswith("carpool: cannot start the container: cannot write ")
            disk.free()
            await rig.ready("fn")
            assert 200 == (await rig.call("GET", "/function/fn")).status

        play(tmp_path)
