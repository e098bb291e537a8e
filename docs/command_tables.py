"""The commands and their options as Markdown, read from their argument parsers."""

from __future__ import annotations

import argparse
import importlib
import os
from typing import TYPE_CHECKING
from unittest.mock import patch

from carpool.__main__ import COMMANDS, GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterator

# Commands whose first argument chooses another parser.
_KINDS = {"provider": ("docker", "kubernetes"), "compare": ("--live",)}


class _Found(Exception):
    """A command has made its parser and would now parse its arguments."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


def commands_tables() -> str:
    """Every command by group: what it does, an example, and a table of its options."""
    lines: list[str] = []
    for group, commands in GROUPS.items():
        lines += [f"## {group}", ""]
        for name, (_, about, example) in commands.items():
            lines += [f"### carpool {name}", "", f"{_sentence(about)}", "", f"    {example}", ""]
            lines += _options(_parser(name, []))
            for kind in _KINDS.get(name, ()):
                lines += [f"#### carpool {name} {kind}", ""]
                parser = _parser(name, [kind])
                lines += [_sentence(parser.description or ""), "", *_options(parser)]
    return "\n".join(lines[:-1]) + "\n"


def _parser(name: str, argv: list[str]) -> argparse.ArgumentParser:
    """The parser with which a command would read its arguments."""

    def stop(parser: argparse.ArgumentParser, *_: object) -> None:
        raise _Found(parser)

    module, _, function = COMMANDS[name][0].partition(":")
    main = getattr(importlib.import_module(module), function)
    here = patch.dict(os.environ, {"OPENFAAS_URL": ""})  # a default that differs by machine
    with here, patch.object(argparse.ArgumentParser, "parse_args", stop):
        try:
            main(argv)
        except _Found as found:
            return found.parser
    message = f"carpool {name} parses no arguments"
    raise AssertionError(message)


def _options(parser: argparse.ArgumentParser) -> list[str]:
    rows = list(_rows(parser))
    verbs = [row for action in parser._actions for row in _verbs(action)]  # noqa: SLF001  argparse has no other way
    if not rows:
        return verbs
    return ["| argument | meaning |", "|---|---|", *rows, "", *verbs]


def _verbs(action: argparse.Action) -> Iterator[str]:
    """The verbs of a command that has some, each with its own options."""
    if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  as above
        for parser in action.choices.values():
            yield from (f"#### {parser.prog}", "", _sentence(parser.description), "")
            yield from _options(parser)


def _rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()  # noqa: SLF001  as above
    for action in parser._actions:  # noqa: SLF001  as above
        hidden = action.help == argparse.SUPPRESS
        if hidden or isinstance(action, argparse._HelpAction | argparse._SubParsersAction):  # noqa: SLF001  as above
            continue
        meaning = formatter._expand_help(action) if action.help else ""  # noqa: SLF001  as above
        cells = (_written(action), " ".join(meaning.split()))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _written(action: argparse.Action) -> str:
    """How an argument is written: its flags, and its value if it takes one."""
    value = action.metavar or action.dest.upper()
    if action.choices:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return f"`{value if action.choices else action.metavar or action.dest}`"
    taken = "" if action.nargs == 0 else f" {value}"
    return ", ".join(f"`{flag}{taken}`" for flag in action.option_strings)


def _sentence(text: str | None) -> str:
    """``text`` with a capital and a full stop."""
    plain = " ".join((text or "").split()).replace("``", "`")
    return plain[:1].upper() + plain[1:] + ("" if plain.endswith(".") else ".")
