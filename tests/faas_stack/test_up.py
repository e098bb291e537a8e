"""Tests of ``carpool up`` as a user starts it, with real processes, sidecars and signals."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

from carpool import basic_auth
from tests.tools import require_tool
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
HANDLER = ROOT / "tests" / "services" / "handler.py"
STACK = """\
version: 1.0
provider:
  name: openfaas
functions:
  shout:
    lang: tiny
    handler: ./shout
    image: shout:latest
    labels:
      com.carpool.slo: 20s
      com.carpool.batch.policy: fixed
      com.carpool.batch.wait: 20ms
      com.carpool.scale.min: "2"
    environment:
      word: hello
  plain:
    lang: tiny
    handler: ./shout
    image: plain:latest
    labels:
      com.carpool.batch.policy: none
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a stack file of two functions, whose template needs no library."""
    template = tmp_path / "template" / "tiny"
    (template / "function").mkdir(parents=True)
    (template / "template.yml").write_text("language: tiny\nfprocess: python handler.py\n")
    shutil.copy(HANDLER, template)
    (tmp_path / "shout").mkdir()
    (tmp_path / "shout" / "data.txt").write_text("x")
    (tmp_path / "stack.yaml").write_text(STACK)
    return tmp_path


class Up:
    """A running ``carpool`` command."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[str] = []
        assert process.stderr is not None
        self._reader = threading.Thread(target=self.said.extend, args=(process.stderr,))
        self._reader.start()

    def result(self) -> dict[str, Any]:
        """Return the document that ``--json`` prints."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.ended()
        document: dict[str, Any] = json.loads(line)
        return document

    def ended(self) -> tuple[int, str]:
        """Wait for the end and return the exit status and the standard error."""
        code = self.process.wait(HANG_S)
        self._reader.join(HANG_S)
        return code, "".join(self.said)


def system(result: dict[str, Any], path: str) -> requests.Response:
    """Call a running stack with the credentials that it refers to."""
    pair = basic_auth.credentials(Path(result["credentials"]))
    return requests.get(result["url"] + path, auth=pair, timeout=HANG_S)


@contextlib.contextmanager
def carpool(folder: Path, *args: str) -> Iterator[Up]:
    """Run the command in ``folder``, and kill it at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "carpool", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    up = Up(process)
    try:
        yield up
    finally:
        process.kill()
        up.ended()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def test_up_serves_and_drains(folder: Path) -> None:
    """Functions are assembled, deployed, ready and described, and Ctrl-C drains and ends all."""
    with carpool(folder, "up", "--port", "0", "--json") as up:
        result = up.result()
        url, started = result["url"], descendants(up.process.pid)
        assert [
            {
                "name": "shout",
                "url": f"{url}/function/shout",
                "replicas": 2,
                "batch_policy": "fixed",
                "slo_s": 20.0,
            },
            {
                "name": "plain",
                "url": f"{url}/function/plain",
                "replicas": 1,
                "batch_policy": "none",
                "slo_s": None,
            },
        ] == result["functions"]
        assert "x" == (folder / "build" / "shout" / "function" / "data.txt").read_text()
        for row in result["functions"]:
            answer = requests.post(row["url"], data=b"abc", timeout=HANG_S)
            assert (200, b"ABC") == (answer.status_code, answer.content)
        logs = system(result, "/system/logs?name=shout").text
        assert 2 == logs.count('"handler hello"')
        up.process.send_signal(signal.SIGINT)
        code, said = up.ended()
    assert 0 == code, said
    assert "shout: starting" in said
    assert "plain: ready after" in said
    assert "draining" in said
    wait_until(lambda: not [pid for pid in started if Path(f"/proc/{pid}").exists()])


@pytest.mark.slow
def test_sigterm_completes_accepted_calls(folder: Path) -> None:
    """A call accepted before SIGTERM gets its response."""
    (folder / "stack.yaml").write_text(STACK.replace("20ms", "1s"))
    with carpool(folder, "up", "--port", "0", "--json") as up:
        result = up.result()
        answers: list[requests.Response] = []
        call = threading.Thread(
            target=lambda: answers.append(
                requests.post(result["functions"][0]["url"], data=b"abc", timeout=HANG_S)
            )
        )
        call.start()
        status = "/system/function/shout"
        wait_until(lambda: system(result, status).json()["invocationCount"] == 1)
        up.process.send_signal(signal.SIGTERM)
        call.join(HANG_S)
        assert 0 == up.ended()[0]
    assert [(200, b"ABC")] == [(answer.status_code, answer.content) for answer in answers]


@pytest.mark.slow
def test_second_interrupt_kills(folder: Path) -> None:
    """A second Ctrl-C does not wait for calls and leaves no process behind."""
    (folder / "stack.yaml").write_text(STACK.replace("20ms", "50s").replace("20s", "90s"))
    with carpool(folder, "up", "--port", "0", "--json") as up:
        result = up.result()
        url = result["functions"][0]["url"]

        def call() -> None:
            with contextlib.suppress(requests.ConnectionError):
                assert 502 == requests.post(url, data=b"abc", timeout=HANG_S).status_code

        caller = threading.Thread(target=call)
        caller.start()
        status = "/system/function/shout"
        wait_until(lambda: system(result, status).json()["invocationCount"] == 1)
        started = descendants(up.process.pid)
        assert len(started) >= 7  # a keeper, three sidecars, three handlers
        up.process.send_signal(signal.SIGINT)
        wait_until(lambda: any("draining" in line for line in up.said))
        up.process.send_signal(signal.SIGINT)
        assert 130 == up.ended()[0]
        caller.join(HANG_S)
    wait_until(lambda: not [pid for pid in started if Path(f"/proc/{pid}").exists()])


def descendants(ancestor: int) -> set[int]:
    """Return the process ids of all descendants of a process."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    found = {ancestor}
    while below := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= below
    return found - {ancestor}


def test_output_without_json_has_a_line_per_function(folder: Path) -> None:
    """Without --json, the output has one line per function."""
    with carpool(folder, "up", "--port", "0") as up:
        assert up.process.stdout is not None
        lines = [up.process.stdout.readline().split() for _ in range(3)]
        assert ["FUNCTION", "URL", "REPLICAS", "BATCH", "SLO"] == lines[0]
        assert ["shout", "2", "fixed", "20s"] == [lines[1][0], *lines[1][2:]]
        assert ["plain", "1", "none", "-"] == [lines[2][0], *lines[2][2:]]


@pytest.mark.slow
def test_json_log_lines_name_their_component(folder: Path) -> None:
    """In a JSON log, every line is an object that names its component."""
    with carpool(folder, "up", "--port", "0", "--json", "--log-format", "json") as up:
        up.result()
        up.process.send_signal(signal.SIGTERM)
        code, said = up.ended()
    assert 0 == code, said
    lines = [json.loads(line) for line in said.splitlines()]
    assert {"provider"} == {line["part"] for line in lines}
    assert {"time", "level", "part", "message"} <= lines[0].keys()
    assert any(line["message"].startswith("draining") for line in lines)


@pytest.mark.slow
def test_function_that_never_becomes_ready_exits_with_1(folder: Path) -> None:
    """If a function never becomes ready, the command exits with 1 and prints its last output."""
    broken = STACK.replace("word: hello", "fail: no model here")
    (folder / "stack.yaml").write_text(broken)
    with carpool(folder, "up", "--port", "0", "--ready-timeout", "60s") as up:
        code, said = up.ended()
    assert 1 == code
    assert "carpool up: shout " in said
    assert "no model here" in said


def test_port_in_use(folder: Path) -> None:
    """A port that is in use is an error before anything is written."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with carpool(folder, "up", "--port", port) as up:
            code, said = up.ended()
    assert 2 == code
    assert f"'127.0.0.1:{port}': expected a free address" in said
    assert "choose another with --port" in said
    assert not (folder / "build").exists()


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("-f", "none.yaml"), "expected an existing file; carpool new NAME creates one"),
        (("--ready-timeout", "soon"), "--ready-timeout = 'soon': expected a duration"),
        (("--port", "99999"), "'127.0.0.1:99999': expected HOST:PORT"),
    ],
)
def test_bad_arguments(folder: Path, args: tuple[str, ...], expected: str) -> None:
    """Invalid arguments are reported with exit status 2."""
    with carpool(folder, "up", *args) as up:
        code, said = up.ended()
    assert 2 == code
    assert expected in said


def test_broken_stack_file(folder: Path) -> None:
    """Each problem of a stack file is reported on its own line."""
    (folder / "stack.yaml").write_text(STACK.replace("lang: tiny", "lang: tinny", 1) + "    x: 1\n")
    with carpool(folder, "up", "--port", "0") as up:
        code, said = up.ended()
    assert 2 == code
    lines = said.splitlines()
    assert 2 == len(lines)
    assert "functions.shout.lang = 'tinny'" in lines[0]
    assert "functions.plain.x = '1'" in lines[1]


@pytest.mark.slow
def test_faas_cli(folder: Path) -> None:
    """The real faas-cli logs in, deploys, lists, invokes, describes and removes functions."""
    cli = require_tool("faas-cli")
    with carpool(folder, "provider", "--port", "0") as up:
        wait_until(lambda: "to log in: " in "".join(up.said), what="the address and a login")
        said = "".join(up.said)
        url = said.partition("provider at ")[2].partition(";")[0]
        home = {**os.environ, "HOME": str(folder), "PATH": f"{Path(cli).parent}:{os.defpath}"}

        def run(*args: str, given: str = "", code: int = 0) -> str:
            command = [cli, *args, "--gateway", url]
            done = subprocess.run(
                command,
                check=False,
                cwd=folder,
                env=home,
                input=given,
                capture_output=True,
                text=True,
            )
            assert code == done.returncode, done.stdout + done.stderr
            return done.stdout + done.stderr

        assert "nauthorized" in run("list", code=1)
        login = said.partition("to log in: ")[2].partition("\n")[0]
        subprocess.run(login, shell=True, cwd=folder, env=home, check=True, capture_output=True)
        run("deploy", "-f", "stack.yaml")
        run("deploy", "-f", "stack.yaml")
        assert {"shout", "plain"} <= set(run("list").split())
        run("ready", "shout")
        # It may say first, on the same stream, that the command is to be found elsewhere soon.
        assert "ABC" == run("invoke", "shout", given="abc").splitlines()[-1]
        assert "shout:latest" in run("describe", "shout")
        run("remove", "-f", "stack.yaml")
        assert "shout" not in run("list")
