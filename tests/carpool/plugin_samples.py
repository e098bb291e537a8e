"""Policies as a third party might write them, well and badly; not collected as tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping


class Patient:
    """Waits as long as it may.

    More is said below the first line.
    """

    @dataclass(frozen=True)
    class Params:
        """Parameters."""

        goal: float
        size: int = 8
        mode: Literal["soft", "hard"] = "soft"
        cap: int | None = None
        names: tuple[str, ...] = ()
        strict: bool = False

        def __post_init__(self) -> None:
            """Refuse a goal out of range."""
            if not 0 <= self.goal <= 1:
                message = f"goal {self.goal:g} is not a share"
                raise ValueError(message)

    def __init__(self, params: Params) -> None:
        self.params = params


class Typeless:
    """Its parameter's type is not importable at run time."""

    @dataclass(frozen=True)
    class Params:
        """Parameters."""

        shares: Mapping[str, float]


class Mistyped:
    """The annotation of its parameter cannot be evaluated."""

    @dataclass(frozen=True)
    class Params:
        """Parameters."""

        share: Literal["soft"].hard = 1  # type: ignore[valid-type]


class Leaving:
    """Ends the process when it is created."""

    @dataclass(frozen=True)
    class Params:
        """Parameters."""

    def __init__(self, params: Params) -> None:
        raise SystemExit(params)


class Formless:
    """Has no Params."""


def not_a_class() -> None:
    """Stand where a class is expected."""
