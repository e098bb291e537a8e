"""Command lines of `carpool` in blocks of code have arguments that the commands accept.

This includes commands that no test runs, because they need a cluster or take hours.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.__main__ import BENCHMARKS
from carpool.__main__ import COMMANDS
from tests.docs.snippets import PAGES, blocks

if TYPE_CHECKING:
    from collections.abc import Callable

_Parser = argparse.ArgumentParser
_SET = r"(?:\w+=(?:'[^']*'|\S+) +)*"
_LINE = re.compile(rf"(?:^|[;&] ){_SET}((?:carpool|python -m benchmarks) [a-z].*)$", re.MULTILINE)
LINES = sorted(
    {
        f"{page}: {line}"
        for page in PAGES
        for block in blocks(page)
        for line in _LINE.findall(re.sub(r"\\\n *", "", block.text))
    }
)


class _Accepted(Exception):
    """Raised when a command has read its arguments, before it begins."""


def _words(line: str) -> list[str]:
    """Return the words of a command before any operator of the shell, without an ellipsis."""
    shell = shlex.shlex(line, posix=True, punctuation_chars=True)
    shell.whitespace_split = True
    words = list(shell)
    ends = [n for n, word in enumerate(words) if set(word) <= set("|&;<>")]
    return [word for word in words[: min(ends, default=None)] if word != "..."]


def _main(words: list[str]) -> tuple[Callable[[list[str]], int], list[str]]:
    """Return the function that a command runs, and its arguments."""
    if words[0] == "python":
        return BENCHMARKS[words[3]], words[4:]
    module, _, function = COMMANDS[words[1]][0].partition(":")
    return getattr(importlib.import_module(module), function), words[2:]


@pytest.fixture
def _unabbreviated(monkeypatch: pytest.MonkeyPatch) -> None:
    """End commands when their arguments are accepted, and allow no abbreviations."""
    parse, parse_known = _Parser.parse_args, _Parser.parse_known_args

    def stop(parser: _Parser, args: list[str] | None = None) -> None:
        parse(parser, args)
        raise _Accepted

    def exact(parser: _Parser, *args: Any) -> tuple[argparse.Namespace, list[str]]:
        parser.allow_abbrev = False  # also of a verb, whose parser is called by the command's
        return parse_known(parser, *args)

    monkeypatch.setattr(_Parser, "parse_args", stop)
    monkeypatch.setattr(_Parser, "parse_known_args", exact)


@pytest.mark.usefixtures("_unabbreviated")
@pytest.mark.parametrize("line", LINES)
def test_arguments_are_accepted(line: str) -> None:
    """The command's parser accepts them as printed."""
    main, argv = _main(_words(line.partition(": ")[2]))
    with pytest.raises(_Accepted):
        main(argv)


@pytest.mark.usefixtures("_unabbreviated")
@pytest.mark.parametrize(
    "line", ["carpool simulate osvt --repor x", "carpool scaler run --gatew x"]
)
def test_abbreviated_options_are_refused(line: str) -> None:
    """Abbreviated options of commands and of their verbs are refused."""
    main, argv = _main(_words(line))
    with pytest.raises(SystemExit):
        main(argv)


def test_command_lines_are_found() -> None:
    """Commands are found behind variables and behind another command, too."""
    names = {_words(line.partition(": ")[2])[1] for line in LINES}
    assert {"sidecar", "up", "scaler", "simulate", "-m"} <= names
