"""``${VAR:-default}`` substitution over the text of a stack file, as in faas-cli.

Independent of YAML: substitution happens before parsing, so a variable may be anywhere, even in
keys. An undefined variable without default becomes empty text, ``$$`` is a literal dollar sign and
a backslash escapes a slash or a backslash.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.validation.problems import Problems

__all__ = ["substitute"]

_SPECIAL = re.compile(r"\$\$|\\[\\/]|\$\{")
_EXPRESSION = re.compile(r"([\w-]+)(?:(:?[-=])|(?=\}))")
_FORMS = "${NAME}, ${NAME:-default} or $${ for a literal ${"


def substitute(text: str, env: Mapping[str, str], name: str, problems: Problems) -> str:
    """Return ``text`` with every expression replaced; report malformed ones and keep their text.

    Args:
        text: Text with expressions.
        env: The variables.
        name: Name of the text in problems, to which a line number is appended.
        problems: Problems to which malformed expressions are added.
    """
    return _Substitution(text, env, name, problems).run(0, nested=False)[0]


class _Substitution:
    def __init__(self, text: str, env: Mapping[str, str], name: str, problems: Problems) -> None:
        self._text = text
        self._env = env
        self._name = name
        self._problems = problems

    def run(self, at: int, *, nested: bool) -> tuple[str, int]:
        """Replace from ``at`` on; within an expression, up to its closing brace."""
        text = self._text
        parts: list[str] = []
        while at < len(text):
            match = _SPECIAL.search(text, at)
            stop = match.start() if match else len(text)
            if nested and (brace := text.find("}", at, stop)) >= 0:
                return "".join((*parts, text[at:brace])), brace
            parts.append(text[at:stop])
            if not match:
                break
            if match[0] == "${":
                value, at = self._expression(match.start())
                parts.append(value)
            else:
                parts.append(match[0][1])
                at = match.end()
        return "".join(parts), len(text)

    def _expression(self, start: int) -> tuple[str, int]:
        match = _EXPRESSION.match(self._text, start + 2)
        if match is None:
            return self._ill_formed(start)
        name, operator = match[1], match[2]
        default, end = self.run(match.end(), nested=True) if operator else ("", match.end())
        if end >= len(self._text):
            return self._ill_formed(start)
        return self._env.get(name) or default, end + 1

    def _ill_formed(self, start: int) -> tuple[str, int]:
        line = self._text.count("\n", 0, start) + 1
        shown = self._text[start : start + 40].partition("\n")[0]
        self._problems.add(f"{self._name}:{line}", shown, _FORMS)
        return "${", start + 2
