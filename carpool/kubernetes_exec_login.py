"""Logins by a program (``exec`` in a kubeconfig), called as kubectl does, with a time limit.

It runs when a request needs a token and none is known, or the API server has refused the current
one. It cannot ask questions, so its standard input is empty. The versions of the exec API do not
differ in anything that is used here. Certificates are not supported: the program must return a
token.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from contextlib import suppress
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING

import httpx2 as httpx
from lightkube.core.exceptions import ConfigError as LightkubeConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from lightkube.config.models import UserExec

__all__ = ["ExecLogin"]

_QUESTION = "KUBERNETES_EXEC_INFO"
_LIMIT_S = 30.0
_REAP_S = 1.0
_REFUSED = 401


class ExecLogin(httpx.Auth):
    """Authenticates requests with the token that a program returns.

    Args:
        login: The kubeconfig's entry for the program.
    """

    def __init__(self, login: UserExec) -> None:
        exec_info = {
            "apiVersion": login.apiVersion,
            "kind": "ExecCredential",
            "spec": {"interactive": False},
        }
        own = {each.name: each.value for each in login.env or ()}
        self._command = (str(login.command), *(login.args or ()))
        self._env = {**os.environ, **own, _QUESTION: json.dumps(exec_info)}
        self._token = ""
        self._running = asyncio.Lock()

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        """Send a request, and repeat it with a new token if the current one is refused.

        Raises:
            LightkubeConfigError: the program fails, gives no token, or does not end within 30 s.
        """
        if self._token and (yield self._shown(request)).status_code != _REFUSED:
            return
        self._read(self._run())
        yield self._shown(request)

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Send a request as `sync_auth_flow` does; cancelling it ends the program.

        The program runs once for all waiting requests.
        """
        shown = self._token
        if shown and (yield self._shown(request)).status_code != _REFUSED:
            return
        async with self._running:
            if self._token == shown:
                self._read(await self._run_async())
        yield self._shown(request)

    def _shown(self, request: httpx.Request) -> httpx.Request:
        request.headers["authorization"] = f"Bearer {self._token}"
        return request

    def _read(self, output: bytes) -> None:
        try:
            self._token = json.loads(output)["status"]["token"]
        except (ValueError, KeyError, TypeError) as error:
            message = f"the login program {self._command[0]} printed no ExecCredential with a token"
            raise LightkubeConfigError(message) from error

    def _run(self) -> bytes:
        program = subprocess.Popen(  # noqa: S603 - the kubeconfig names it
            self._command,
            env=self._env,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        with program:
            try:
                output, errors = program.communicate(timeout=_LIMIT_S)
            except subprocess.TimeoutExpired:
                raise self._overdue() from None
            finally:
                _end(program)
        return self._checked(program.returncode, output, errors)

    async def _run_async(self) -> bytes:
        program = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._env,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_LIMIT_S):
                output, errors = await program.communicate()
        except TimeoutError:
            raise self._overdue() from None
        finally:
            _end(program)
            with suppress(TimeoutError):  # something of it may live on, out of reach
                async with asyncio.timeout(_REAP_S):
                    await program.wait()
        return self._checked(program.returncode, output, errors)

    def _checked(self, status: int | None, output: bytes, errors: bytes) -> bytes:
        if status:
            error_text = errors.decode("utf-8", "replace").strip()
            message = f"the login program {self._command[0]} returned {status}: {error_text}"
            raise LightkubeConfigError(message)
        return output

    def _overdue(self) -> LightkubeConfigError:
        command = " ".join(self._command)
        message = (
            f"the login program {command!r} did not end within {_LIMIT_S:g} s: try running it alone"
        )
        return LightkubeConfigError(message)


def _end(program: subprocess.Popen[bytes] | asyncio.subprocess.Process) -> None:
    """Kill a program and the processes it has started, if it is still running."""
    if program.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
