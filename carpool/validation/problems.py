"""Collection of problems while reading: suggest the nearest known word, and raise once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from carpool.errors import MISSING, ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

__all__ = ["Problems", "nearest"]

_MOST = 100  # most problems that are reported together; more are not fixed in one pass
_LONGEST = 80  # characters of a name that may be a misspelt one


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the hint ``did you mean 'x'?`` for a misspelt ``name``; empty if nothing is close."""
    if len(name) > _LONGEST:
        return ""
    import difflib  # noqa: PLC0415 - only an error needs it

    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


class Problems:
    """Collects problems while reading continues, so that a user can fix all of them at once.

    The first hundred problems are kept, as documents come from untrusted clients, too.
    """

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def __len__(self) -> int:
        return len(self._found)

    @property
    def full(self) -> bool:
        """Whether the maximum number of problems is reached, so that further ones are dropped."""
        return len(self._found) >= _MOST

    @property
    def found(self) -> tuple[Problem, ...]:
        """Problems added so far."""
        return tuple(self._found)

    def add(self, name: str, value: object, expected: str, hint: str = "") -> None:
        """Add a problem: ``name`` was given ``value`` where ``expected`` was expected."""
        if not self.full:
            self._found.append(Problem(name, str(value), expected, hint))

    def check(
        self, owner: object, names: Iterable[str], accepts: Callable[[Any], bool], expected: str
    ) -> None:
        """Add each of these attributes of ``owner`` that is neither None nor accepted."""
        for name in names:
            value = getattr(owner, name)
            if value is not None and not accepts(value):
                self.add(name, value, expected)

    def missing(self, name: str, expected: str) -> None:
        """Add a problem: ``name`` was not given."""
        self.add(name, "", expected, MISSING)

    def unknown(
        self, name: str, known: Iterable[str], value: object = "", *, within: str = ""
    ) -> None:
        """Add an unknown name ``within`` a path, with the nearest known name."""
        if self.full:
            return
        names = sorted(known)
        hint = nearest(name, names)
        expected = "a known name" if hint else f"one of {', '.join(names)}"
        self.add(f"{within}{name}", value, expected, hint)

    def attempt(self, read: Callable[[], T]) -> T | None:
        """Call ``read``; if it raises problems, add them and return None."""
        try:
            return read()
        except ConfigError as error:
            self.extend("", error)
            return None

    def extend(self, prefix: str, error: ConfigError) -> None:
        """Add the problems of a nested reading, with ``prefix`` before their names."""
        self._found += [
            Problem(f"{prefix}{p.name}", p.value, p.expected, p.hint)
            for p in error.problems[: _MOST - len(self)]
        ]

    def raise_if_any(self) -> None:
        """Raise one `ConfigError` with all problems, if there are any."""
        if self._found:
            raise ConfigError(self._found)
