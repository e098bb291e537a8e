"""``carpool up --watch``: what runs follows the files, as an author edits them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import requests

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
    """A stack that is watched, and what its author does."""

    def __init__(self, up: Up, folder: Path) -> None:
        self._up = up
        self._folder = folder
        self._heard = 0
        self.url = up.result()["url"]

    def handler(self, text: str) -> None:
        """Save the handler, as an editor does: into another file, which takes its place."""
        fresh = self._folder / "tell" / "handler.py~"
        fresh.write_text(text)
        fresh.replace(self._folder / "tell" / "handler.py")

    def stack(self, **words: str) -> None:
        """Save the stack file with these functions."""
        write_stack(self._folder, **words)

    def hears(self, part: str) -> str:
        """The next line that has this in it."""
        wait_until(lambda: any(part in line for line in self._new()), what=part)
        place = next(i for i, line in enumerate(self._new()) if part in line)
        line = self._new()[place]
        self._heard += place + 1
        return line

    def builds(self) -> Iterator[Path]:
        """The folders that the function was assembled in."""
        return (self._folder / "build").glob("tell*")

    def _new(self) -> list[str]:
        return self._up.said[self._heard :]

    def call(self, name: str = "tell") -> tuple[int, str]:
        """Status and text of an answer."""
        answer = requests.post(f"{self.url}/function/{name}", data=b"x", timeout=HANG_S)
        return answer.status_code, answer.text


def shape(line: str) -> str:
    """Return a line without the seconds that something took."""
    return re.sub(r"\d+(\.\d+)?", "N", line.strip())


def write_stack(folder: Path, **words: str) -> None:
    """A stack file with a function for each name."""
    functions = (FUNCTION.format(name=name, word=word) for name, word in words.items())
    (folder / "stack.yaml").write_text(STACK + "".join(functions))


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """A stack with one function."""
    (tmp_path / "tell").mkdir()
    (tmp_path / "tell" / "handler.py").write_text(HANDLER.format(text="first"))
    write_stack(tmp_path, tell="word")
    with carpool(tmp_path, *COMMAND.split()[1:], "--port", "0", "--json", "--no-watchdog") as up:
        yield Watched(up, tmp_path)


def test_an_edit_is_loaded_and_a_broken_one_is_told(watched: Watched) -> None:
    """Each reload is a line; the old handler answers until the new one is ready."""
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


def test_a_further_edit_ends_a_reload_that_cannot_end(watched: Watched) -> None:
    """What hangs while it loads does not keep its fixed successor waiting."""
    watched.handler("import time\n\nprint('hanging', flush=True)\ntime.sleep(1e6)\n")
    wait_until(lambda: len(list(watched.builds())) == 2, what="the reload")
    watched.handler(HANDLER.format(text="fixed"))
    watched.hears("reloaded in")
    assert (200, "fixed word") == watched.call()


def test_the_stack_file_is_followed(watched: Watched) -> None:
    """Functions are changed, added and removed; a file that cannot be used changes nothing."""
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
