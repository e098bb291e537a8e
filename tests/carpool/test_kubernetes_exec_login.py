"""Logins by a kubeconfig's exec program: real scripts, called as clients call them."""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

import httpx2 as httpx
import pytest
from lightkube.config.models import NameValue, UserExec
from lightkube.core.exceptions import ConfigError

from carpool import kubernetes_exec_login
from carpool.kubernetes_exec_login import ExecLogin
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

V1 = "client.authentication.k8s.io/v1"


def login(folder: Path, script: str, *arguments: str) -> ExecLogin:
    """Return a login that runs a shell script."""
    program = folder / "login"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    own = [NameValue("OWN", "1")]
    return ExecLogin(UserExec(V1, str(program), own, list(arguments)))


def ask(by: ExecLogin, *, waits: bool, refused: str = "") -> list[str]:
    """Send two requests to an API server that refuses one token, and return the tokens sent."""
    shown: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        shown.append(request.headers["authorization"].removeprefix("Bearer "))
        return httpx.Response(401 if shown[-1] == refused and len(shown) > 1 else 200)

    async def waiting() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer), auth=by) as client:
            for _ in range(2):
                await client.get("http://cluster/")

    if waits:
        with httpx.Client(transport=httpx.MockTransport(answer), auth=by) as client:
            for _ in range(2):
                client.get("http://cluster/")
    else:
        asyncio.run(waiting())
    return shown


@contextmanager
def stdin_that_never_ends() -> Iterator[None]:
    """Replace this process's standard input, which programs would inherit, by an open pipe."""
    (reads, writes), own = os.pipe(), os.dup(0)
    os.dup2(reads, 0)
    try:
        yield
    finally:
        os.dup2(own, 0)
        for each in (reads, writes, own):
            os.close(each)


@pytest.mark.parametrize("waits", [True, False])
def test_token_is_requested_once_and_again_when_refused(tmp_path: Path, waits: bool) -> None:  # noqa: FBT001
    """The program gets the kubeconfig's arguments, variables and version, and no input."""
    script = f"""
cat >{tmp_path}/input
case $KUBERNETES_EXEC_INFO in *'"{V1}"'*'"interactive": false'*) ;; *) exit 4 ;; esac
echo run >>{tmp_path}/runs
echo '{{"status": {{"token": "'$OWN$1$(wc -l <{tmp_path}/runs)'"}}}}'"""
    by = login(tmp_path, script, "x")
    with stdin_that_never_ends():
        assert ["1x1", "1x1", "1x2"] == ask(by, waits=waits, refused="1x1")
    assert "" == (tmp_path / "input").read_text()


@pytest.mark.parametrize("waits", [True, False])
def test_a_program_that_hangs_is_ended(tmp_path: Path, waits: bool) -> None:  # noqa: FBT001
    """The program and its child processes are killed, and the error names the program."""
    script = f"echo $$ >{tmp_path}/pid; sleep {10 * HANG_S:g} & echo $! >>{tmp_path}/pid; wait"
    by = login(tmp_path, script)
    with (
        patch.object(kubernetes_exec_login, "_LIMIT_S", 1.0),
        pytest.raises(ConfigError, match="login' did not end within 1 s"),
    ):
        ask(by, waits=waits)
    programs = [int(pid) for pid in (tmp_path / "pid").read_text().split()]
    assert len(programs) == 2
    wait_until(lambda: all(map(ended, programs)), what="the end of both processes")


def ended(pid: int) -> bool:
    """Return whether a process has ended or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
            return stat.read().rpartition(") ")[2][0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo no such user >&2; exit 3", "returned 3: no such user"),
        ("echo hello", "printed no ExecCredential with a token"),
        ("echo '{\"status\": null}'", "printed no ExecCredential with a token"),
    ],
)
def test_a_program_that_gives_no_token(
    tmp_path: Path,
    script: str,
    message: str,
    waits: bool,  # noqa: FBT001
) -> None:
    """The error says why a program gave no token."""
    with pytest.raises(ConfigError, match=message):
        ask(login(tmp_path, script), waits=waits)
