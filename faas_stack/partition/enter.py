"""Enter a partition and become a command: ``enter.py [--group FILE]... [--cores 0,1] -- COMMAND``.

The process writes itself into each group's ``cgroup.procs`` and sets its affinity before it becomes
COMMAND, so that nothing that COMMAND does or starts is ever outside. It imports only the standard
library, because it starts before every instance.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["command"]

_CANNOT_ENTER = 125


def command(
    argv: Sequence[str], groups: Iterable[Path] = (), cores: Sequence[int] = ()
) -> tuple[str, ...]:
    """Return the command that runs ``argv`` in these groups and on these cores."""
    words = [word for file in groups for word in ("--group", str(file))]
    if cores:
        words += ["--cores", ",".join(map(str, cores))]
    if not words:
        return tuple(argv)
    this = (sys.executable, "-I", "-S", str(Path(__file__).resolve()))
    return (*this, *words, "--", *argv)


def _enter(words: list[str]) -> list[str]:
    """Apply the options and return the remaining words, which are the command."""
    while (word := words.pop(0)) != "--":
        value = words.pop(0)
        if word == "--group":
            Path(value).write_text("0", encoding="ascii")  # the writing process
        else:
            os.sched_setaffinity(0, map(int, value.split(",")))
    return words


if __name__ == "__main__":
    try:
        rest = _enter(sys.argv[1:])
    except OSError as error:
        sys.stderr.write(f"carpool: cannot enter the partition: {error}\n")
        sys.exit(_CANNOT_ENTER)
    os.execvp(rest[0], rest)  # noqa: S606 - becoming the command is the purpose
