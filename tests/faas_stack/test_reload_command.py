"""Tests of ``carpool reload`` with a running ``carpool up``, real sidecars and load."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Self

import pytest
import requests

from carpool.__main__ import main
from tests.faas_stack.test_up import carpool
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("reload command")]

STACK = """\
provider: {name: openfaas}
functions:
  tell:
    lang: python3-batch
    handler: ./tell
    image: tell:latest
  asleep:
    lang: python3-batch
    handler: ./asleep
    image: asleep:latest
    labels: {com.carpool.scale.min: "0"}
"""
# What was loaded, and what its folder holds: two of one folder are never told together.
HANDLER = """\
from pathlib import Path

MODEL = Path(__file__).with_name("model.txt")
loaded = MODEL.read_text()


def handle_batch(items):
    return [f"{loaded} {MODEL.read_text()}"] * len(items)
"""
CALLERS = 8


class Stack:
    """A running stack."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def model(self, text: str, function: str = "tell") -> None:
        """Write another model to a function's folder."""
        (self.folder / function / "model.txt").write_text(text)

    def call(self, function: str = "tell") -> str:
        """Call a function and return its response."""
        answer = requests.post(f"{self.url}/function/{function}", data=b"x", timeout=HANG_S)
        assert 200 == answer.status_code, answer.text
        return answer.text

    def reload(self, *argv: str) -> int:
        """Run the command and return its exit status."""
        return main(["reload", *argv, "--gateway", self.url])


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack with two functions, one of them at zero replicas."""
    folder = tmp_path_factory.mktemp("stack")
    for name in ("tell", "asleep"):
        (folder / name).mkdir()
        (folder / name / "handler.py").write_text(HANDLER)
        (folder / name / "model.txt").write_text("first")
    (folder / "stack.yaml").write_text(STACK)
    with carpool(folder, "up", "--port", "0", "--json", "--no-watchdog") as up:
        yield Stack(up.result()["url"], folder)


class Callers:
    """Threads that call in sequence and keep all responses."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ended = threading.Event()
        self.answers: list[tuple[int, str]] = []
        self._threads = [threading.Thread(target=self._call) for _ in range(CALLERS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(HANG_S)

    def _call(self) -> None:
        with requests.Session() as session:
            while not self._ended.is_set():
                try:
                    answer = session.post(self._url, data=b"x", timeout=HANG_S)
                    self.answers.append((answer.status_code, answer.text))
                except requests.RequestException as error:
                    self.answers.append((0, repr(error)))


def test_a_model_is_reloaded_under_load(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    """During a reload no request fails, and afterwards all responses are of the new model."""
    stack.model("first")
    assert 0 == stack.reload("tell")
    with Callers(f"{stack.url}/function/tell") as callers:
        wait_until(lambda: len(callers.answers) > CALLERS, what="load")
        stack.model("second")
        capsys.readouterr()
        assert 0 == stack.reload("tell")
        assert "tell: 1 instance reloaded in" in capsys.readouterr().out
        during = len(callers.answers)
        assert {"second second"} == {stack.call() for _ in range(20)}
        wait_until(lambda: len(callers.answers) > during + 5 * CALLERS, what="load afterwards")
    assert {(200, "first first"), (200, "second second")} == set(callers.answers)
    assert {(200, "second second")} == set(callers.answers[during + CALLERS :])


def test_a_broken_model_changes_nothing(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    """A broken model is reported without affecting requests, and loaded once it is fixed."""
    stack.model("good")
    assert 0 == stack.reload("tell")
    handler = stack.folder / "tell" / "handler.py"
    handler.write_text("raise OSError('no such weights')\n")
    stack.model("bad")
    with Callers(f"{stack.url}/function/tell") as callers:
        wait_until(lambda: len(callers.answers) > CALLERS, what="load")
        assert 1 == stack.reload("tell")
    assert {(200, "good good")} == set(callers.answers)
    said = capsys.readouterr().err
    assert "carpool reload: tell keeps failing" in said
    assert "no such weights" in said
    handler.write_text(HANDLER)
    assert 0 == stack.reload("tell", "--json")
    assert "bad bad" == stack.call()
    done = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert ("tell", 1, True) == (done["name"], done["replicas"], done["finished"])


def test_unused_build_folders_are_removed(stack: Stack) -> None:
    """After many reloads, at most two build folders remain beside the first."""
    for _ in range(4):
        assert 0 == stack.reload("tell")
    there = {path.name for path in (stack.folder / "build").glob("tell*")}
    assert "tell" in there
    assert len(there) <= 3


def test_function_at_zero_starts_with_new_files(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reloading a function at zero starts no instance, and the next one loads the new files."""
    stack.model("later", "asleep")
    assert 0 == stack.reload("asleep")
    assert "asleep: no instance runs; the next one loads the new files" in capsys.readouterr().out
    assert "later later" == stack.call("asleep")


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("nope",), 1, "no function 'nope'"),
        (("tell", "--ready-timeout", "soon"), 2, "a duration such as 90s"),
        (("tell", "--ready-timeout=-5s"), 2, "--ready-timeout = '-5s': expected a duration"),
        (("a/b",), 1, "no route"),
    ],
)
def test_unknown_function_or_invalid_option_is_an_error(
    stack: Stack, argv: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown function or an invalid option is an error."""
    assert code == stack.reload(*argv)
    assert said in capsys.readouterr().err


def test_missing_provider_error_has_address(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a provider, the error has its address."""
    assert 1 == main(["reload", "tell", "-g", "http://127.0.0.1:1"])
    assert "no provider answers at http://127.0.0.1:1" in capsys.readouterr().err
