"""Tests of ``carpool up --watch``, which follows the files as an author edits them."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest
import requests

from faas_stack.provider.scaler_access import token_file
from faas_stack.provider.secrets import SecretStore
from tests.docs.snippets import take_one
from tests.faas_stack.test_up import Up, carpool
from tests.waiting import HANG_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("watch")]

COMMAND = take_one("docs/handler.md", "^carpool up --watch")
RELOADED, KEPT, FAILING = take_one("docs/handler.md", "^tell: ").splitlines()
STACK = """\
provider: {name: openfaas}
functions:
"""
FUNCTION = """\
  {name}:
    lang: python3-batch
    handler: ./tell
    image: {name}:latest
    environment: {{word: {word}}}
"""
HANDLER = """\
import os


def handle_batch(items):
    return ["{text} " + os.environ["word"]] * len(items)
"""


class Watched:
    """A watched stack and the edits of its author."""

    def __init__(self, up: Up, folder: Path) -> None:
        self._up = up
        self._folder = folder
        self._heard = 0
        self.url = up.result()["url"]

    def handler(self, text: str) -> None:
        """Save the handler as an editor does, by moving another file into its place."""
        fresh = self._folder / "tell" / "handler.py~"
        fresh.write_text(text)
        fresh.replace(self._folder / "tell" / "handler.py")

    def stack(self, **words: str) -> None:
        """Save the stack file with these functions."""
        write_stack(self._folder, **words)

    def hears(self, part: str) -> str:
        """Wait for the next line that contains ``part``, and return it."""
        wait_until(lambda: any(part in line for line in self._new()), what=part)
        place = next(i for i, line in enumerate(self._new()) if part in line)
        line = self._new()[place]
        self._heard += place + 1
        return line

    def builds(self) -> Iterator[Path]:
        """Return the folders in which the function was assembled."""
        return (self._folder / "build").glob("tell*")

    def _new(self) -> list[str]:
        return self._up.said[self._heard :]

    def call(self, name: str = "tell") -> tuple[int, str]:
        """Call a function and return the status and text of the response."""
        answer = requests.post(f"{self.url}/function/{name}", data=b"x", timeout=HANG_S)
        return answer.status_code, answer.text


def shape(line: str) -> str:
    """Return a line with its numbers replaced."""
    return re.sub(r"\d+(\.\d+)?", "N", line.strip())


def write_stack(folder: Path, **words: str) -> None:
    """Write a stack file with a function for each name."""
    functions = (FUNCTION.format(name=name, word=word) for name, word in words.items())
    (folder / "stack.yaml").write_text(STACK + "".join(functions))


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """A watched stack with one function."""
    (tmp_path / "tell").mkdir()
    (tmp_path / "tell" / "handler.py").write_text(HANDLER.format(text="first"))
    write_stack(tmp_path, tell="word")
    with carpool(tmp_path, *COMMAND.split()[1:], "--port", "0", "--json", "--no-watchdog") as up:
        yield Watched(up, tmp_path)


def test_edit_is_reloaded_and_broken_one_is_reported(watched: Watched) -> None:
    """Each reload prints a line, and the old handler serves until the new one is ready."""
    assert (200, "first word") == watched.call()
    watched.handler(HANDLER.format(text="second"))
    assert shape(RELOADED) == shape(watched.hears("changed"))
    assert (200, "second word") == watched.call()
    watched.handler("def handle_batch(items:\n")
    assert KEPT in watched.hears("changed")
    assert FAILING in watched.hears("failing")
    assert "SyntaxError" in watched.hears("SyntaxError")
    assert (200, "second word") == watched.call()
    watched.handler(HANDLER.format(text="third"))
    watched.hears("reloaded in")
    assert (200, "third word") == watched.call()


def test_next_edit_replaces_hanging_reload(watched: Watched) -> None:
    """An edit replaces a reload whose handler hangs while it loads."""
    watched.handler("import time\n\nprint('hanging', flush=True)\ntime.sleep(1e6)\n")
    wait_until(lambda: len(list(watched.builds())) == 2, what="the reload")
    watched.handler(HANDLER.format(text="fixed"))
    watched.hears("reloaded in")
    assert (200, "fixed word") == watched.call()


def test_stack_file_changes_are_applied(watched: Watched) -> None:
    """Functions are changed, added and removed; an invalid stack file changes nothing."""
    watched.stack(tell="another")
    assert watched.hears("changed").startswith("tell: stack.yaml changed; deployed again in ")
    assert (200, "first another") == watched.call()
    watched.stack(tell="another", more="one")
    assert watched.hears("more: stack.yaml").startswith("more: stack.yaml changed; deployed in ")
    assert (200, "first one") == watched.call("more")
    watched.stack()
    assert "stack.yaml changed and cannot be used" in watched.hears("changed")
    assert (200, "first another") == watched.call()
    watched.stack(more="one")
    watched.hears("tell: stack.yaml changed; removed in ")
    assert 404 == watched.call()[0] or 503 == watched.call()[0]
    assert (200, "first one") == watched.call("more")


def test_added_policy_starts_scaler(tmp_path: Path) -> None:
    """A scaling policy that a running function gets starts the scaler, also at a later attempt."""
    (tmp_path / "tell").mkdir()
    (tmp_path / "tell" / "handler.py").write_text(HANDLER.format(text="first"))
    write_stack(tmp_path, tell="word")
    options = ("--port", "0", "--scaler-port", "0", "--scaler", "--token-file later")
    with carpool(tmp_path, *COMMAND.split()[1:], *options, "--json", "--no-watchdog") as up:
        watched = Watched(up, tmp_path)
        for word in ("second", "third"):
            write_scaled(tmp_path, word)
            assert "the previous version keeps serving" in watched.hears("changed")
            watched.hears("the scaler does not start")
            assert (200, "first word") == watched.call()
        shutil.copy(token_file(SecretStore(tmp_path / ".secrets")), tmp_path / "later")
        write_scaled(tmp_path, "fourth")
        watched.hears("scaler: its page")
        watched.hears("tell: stack.yaml changed; deployed again in ")
        wait_until(lambda: (200, "first fourth") == watched.call(), what="the scaled function")


def test_added_variants_are_reported_as_unknown_to_scaler(tmp_path: Path) -> None:
    """A function that has variants once the scaler runs is said to need another start."""
    (tmp_path / "tell" / "variants").mkdir(parents=True)
    (tmp_path / "tell" / "handler.py").write_text(HANDLER.format(text="first"))
    write_scaled(tmp_path, "word")
    options = ("--port", "0", "--scaler-port", "0", "--json", "--no-watchdog")
    with carpool(tmp_path, *COMMAND.split()[1:], *options) as up:
        watched = Watched(up, tmp_path)
        (tmp_path / "tell" / "variants" / "variants.json").write_text("{}")
        write_scaled(tmp_path, "another")
        watched.hears("tell: start carpool up again to have its variants used by the scaler")


def write_scaled(folder: Path, word: str) -> None:
    """Write a stack file whose function has a scaling policy."""
    write_stack(folder, tell=word)
    with (folder / "stack.yaml").open("a") as file:
        file.write("    labels: {com.carpool.scale.policy: openfaas}\n")
