"""Tests of ``carpool logs`` with a running ``carpool up``."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
import requests

from carpool.__main__ import main
from tests.docs.snippets import take_one
from tests.faas_stack.test_up import carpool
from tests.waiting import HANG_S, wait_until
from tests.watchdog_plugin import models

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("logs command")  # one worker starts the stack

FOLLOW = take_one("docs/commands.md", "^carpool logs")
STACK = """\
provider: {name: openfaas}
functions:
  echo:
    lang: python3-batch
    handler: ./echo
    image: echo:latest
  net:
    lang: python3-onnx-batch
    handler: ./net
    image: net:latest
"""
HANDLER = """\
def handle_batch(items):
    for item in items:
        print("got", item.bytes().decode())
    return ["done"] * len(items)
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str], Path]]:
    """URL of a stack, its messages at the start, and its folder."""
    folder = tmp_path_factory.mktemp("stack")
    (folder / "echo").mkdir()
    (folder / "echo" / "handler.py").write_text(HANDLER)
    models.mlp(folder / "net" / "model.onnx", batch=1)
    (folder / "stack.yaml").write_text(STACK)
    with carpool(folder, "up", "--port", "0", "--json", "--no-watchdog") as up:
        yield up.result()["url"], up.said, folder


def call(url: str, text: str) -> None:
    """Send a request to the function that prints it."""
    assert requests.post(f"{url}/function/echo", data=text, timeout=HANG_S).ok


def lines(capsys: pytest.CaptureFixture[str], *argv: str) -> list[str]:
    """Return the lines that the command prints."""
    assert 0 == main(["logs", *argv])
    return capsys.readouterr().out.splitlines()


Stack = tuple[str, list[str], "Path"]


def test_handler_note_on_model_is_shown_at_start(stack: Stack) -> None:
    """A handler's note that its model cannot batch is shown when the stack starts."""
    _, said, _ = stack
    wait_until(lambda: "net: ready" in "".join(said), what="the report")
    wait_until(lambda: "requests run one by one" in "".join(said), what="the handler's note")
    (note,) = (line for line in said if "requests run one by one" in line)
    assert "net: handler:" in note
    assert "the first dimension of the input 'x' FP32 [1, 4]" in note


def test_lines_are_printed_with_time_and_instance(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines can be limited to the latest, to an instance or to a time, and printed as JSON."""
    url, _, _ = stack
    call(url, "one")
    call(url, "two")

    def latest() -> list[str]:
        return lines(capsys, "echo", "-g", url, "--tail", "1")

    wait_until(lambda: latest()[0].endswith("got two"), what="the line")
    assert any(line.endswith("got one") for line in lines(capsys, "echo", "--gateway", url))
    (line,) = lines(capsys, "echo", "-g", url, "--tail", "1", "--json")
    assert ("echo", "got two") == (json.loads(line)["name"], json.loads(line)["text"])
    assert [] == lines(capsys, "echo", "-g", url, "--instance", "nobody")
    assert lines(capsys, "echo", "-g", url, "--since", "1h")


def test_follow_prints_lines_until_interrupt(stack: Stack) -> None:
    """With ``--follow``, lines are printed as they come, until an interrupt."""
    url, _, folder = stack
    with carpool(folder, *FOLLOW.replace("NAME", "echo").split()[1:], "-g", url) as following:
        assert following.process.stdout is not None
        call(url, "three")
        while not following.process.stdout.readline().endswith("got three\n"):
            pass
        following.process.send_signal(signal.SIGINT)
        code, said = following.ended()
    assert (130, "") == (code, said)


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("nope",), 1, "nope"),
        (("echo", "--since", "soon"), 2, "a duration such as 5m"),
        (("echo", "-g", "http://127.0.0.1:1"), 1, "no provider answers at http://127.0.0.1:1"),
    ],
)
def test_error_is_reported_with_exit_code(
    stack: Stack, argv: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error is reported with its exit code."""
    assert code == main(["logs", "-g", stack[0], *argv])
    assert said in capsys.readouterr().err


def test_missing_credentials_error_names_option(
    stack: Stack,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Without stored credentials, the error names the option for them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert 1 == main(["logs", "-g", stack[0], "echo"])
    assert "--basic-auth" in capsys.readouterr().err
