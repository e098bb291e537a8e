"""A row of the settings table: how a setting is declared, what it is called, how it is read.

The key ``slo.percentile`` is the label or annotation ``com.carpool.slo.percentile`` and the
environment variable ``carpool_slo_percentile``: one rule, no exceptions, and a prefix that cannot
collide with the function's own environment. Which settings there are is not known here: see
`settings`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carpool.errors import ConfigError
from carpool.validation import rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.setting_types import Kind
    from carpool.validation.problems import Problems

__all__ = ["ENV_PREFIX", "LABEL_PREFIX", "Row", "read", "setting", "with_prefix"]

LABEL_PREFIX = "com.carpool."
ENV_PREFIX = "carpool_"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the settings table.

    Attributes:
        field: of the settings object.
        key: what label and variable are named by.
        kind: of its values.
        default: what holds where nothing is said.
        unset: the word for having no value, where that is the default.
        meaning: for the documentation.
        annotation_only: it may not be a label.
    """

    field: str
    key: str
    kind: Kind
    default: Any
    unset: str
    meaning: str
    annotation_only: bool

    @property
    def label(self) -> str:
        """Name of the label or annotation."""
        return LABEL_PREFIX + self.key

    @property
    def env(self) -> str:
        """Name of the environment variable."""
        return ENV_PREFIX + self.key.replace(".", "_")

    @property
    def default_text(self) -> str:
        """The default as a user would write it, or the word for leaving it out."""
        return self.unset or self.kind.write(self.default)


def setting(
    key: str,
    kind: Kind,
    default: Any,  # noqa: ANN401  each row's field has its own type
    meaning: str,
    *,
    unset: str = "",
    annotation_only: bool = False,
) -> Any:  # noqa: ANN401  stands for the field's own type, as dataclasses.field does
    """Declare a field of the settings.

    Args:
        key: the last part of the label's name.
        kind: of its values.
        default: what holds where nothing is said.
        meaning: for the documentation.
        unset: the word for having no value.
        annotation_only: it is too long, or of characters, that a label may not have.
    """
    row = Row("", key, kind, default, unset, meaning, annotation_only)
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata={"row": row})
    return dataclasses.field(default=default, metadata={"row": row})


def with_prefix(texts: Mapping[str, str] | None, prefix: str) -> dict[str, str]:
    """Those whose name begins with ``prefix``: the others are not ours."""
    return {name: text for name, text in (texts or {}).items() if name.startswith(prefix)}


def read(known: Mapping[str, Row], texts: Mapping[str, str], problems: Problems) -> dict[str, Any]:
    """The values that texts say, by field; what cannot be read is a problem.

    Args:
        known: rows by the name that texts have for them.
        texts: as a user wrote them.
        problems: gets every unknown name and ill-formed value.
    """
    values: dict[str, Any] = {}
    for name, text in sorted(texts.items()):
        if name not in known:
            problems.unknown(name, known, text)
        else:
            _read(known[name], name, text, values, problems)
    return values


def _read(row: Row, name: str, text: str, values: dict[str, Any], problems: Problems) -> None:
    try:
        value = row.kind.read(text)
    except ConfigError as error:
        problems.extend(name, error)
    except ValueError as error:
        problems.add(name, text, row.kind.expected, _reason(error))
    else:
        if row.kind.accepts(value):
            values[row.field] = value
        else:
            problems.add(name, text, row.kind.expected)


def _reason(error: ValueError) -> str:
    """What a JSON reader has to say; the other kinds' expectation says it all."""
    return str(error) if isinstance(error, rules.NotJsonError) else ""
