"""Declaration of settings: a dataclass field each, with name, type, default and meaning.

`setting` declares a setting of a function: the key ``slo.percentile`` is the label or annotation
``com.carpool.slo.percentile`` and the environment variable ``carpool_slo_percentile``. This rule
has no exceptions, and the prefix cannot collide with the function's own environment. `variable`
declares a setting of a process, which is an environment variable only. Reading, the tables of the
documentation and `carpool doctor` use these declarations. The settings themselves are declared
elsewhere.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carpool.errors import ConfigError
from carpool.validation import rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.setting_types import SettingType
    from carpool.validation.problems import Problems

__all__ = [
    "ENV_PREFIX",
    "LABEL_PREFIX",
    "Row",
    "read",
    "read_value",
    "read_variables",
    "rows",
    "setting",
    "variable",
    "with_prefix",
]

LABEL_PREFIX = "com.carpool."
ENV_PREFIX = "carpool_"


@dataclass(frozen=True, slots=True)
class Row:
    """A row in a table of settings.

    Attributes:
        field: name of the field in the settings object.
        env: name of the environment variable.
        value_type: type of its values.
        default: value if not set.
        unset: the default in words, if the value does not express it.
        meaning: description for the documentation.
        key: key in the labels of a function; empty for a setting of a process.
        annotation_only: whether it must be an annotation rather than a label.
    """

    field: str
    env: str
    value_type: SettingType
    default: Any
    unset: str
    meaning: str
    key: str = ""
    annotation_only: bool = False

    @property
    def label(self) -> str:
        """Name of the label or annotation."""
        return LABEL_PREFIX + self.key

    @property
    def default_text(self) -> str:
        """The default as a user would write it, or the words for an unset value."""
        return self.unset or self.value_type.write(self.default)


def setting(
    key: str,
    value_type: SettingType,
    default: Any,  # noqa: ANN401  each row's field has its own type
    meaning: str,
    *,
    unset: str = "",
    annotation_only: bool = False,
) -> Any:  # noqa: ANN401  stands for the field's own type, as dataclasses.field does
    """Declare a setting of a function.

    Args:
        key: the last part of the label's name.
        value_type: type of its values.
        default: value if not set.
        meaning: description for the documentation.
        unset: the word for an unset value.
        annotation_only: whether its values are too long for a label, or have invalid characters.
    """
    env = ENV_PREFIX + key.replace(".", "_")
    return _field(Row("", env, value_type, default, unset, meaning, key, annotation_only))


def variable(
    env: str,
    value_type: SettingType,
    default: Any,  # noqa: ANN401  each row's field has its own type
    meaning: str,
    *,
    unset: str = "",
) -> Any:  # noqa: ANN401  stands for the field's own type, as dataclasses.field does
    """Declare a setting of a process.

    Args:
        env: the environment variable's name.
        value_type: type of its values.
        default: value if the variable is empty or missing.
        meaning: description for the documentation.
        unset: the default in words, if it depends on other settings.
    """
    return _field(Row("", env, value_type, default, unset, meaning))


def _field(row: Row) -> Any:  # noqa: ANN401  as above
    if isinstance(row.default, dict):
        return dataclasses.field(default_factory=dict, metadata={"row": row})
    return dataclasses.field(default=row.default, metadata={"row": row})


@functools.cache
def rows(settings: Any) -> tuple[Row, ...]:  # noqa: ANN401  mypy finds types unhashable
    """Return the settings that a dataclass declares, in the order of its fields."""
    return tuple(
        dataclasses.replace(field.metadata["row"], field=field.name)
        for field in dataclasses.fields(settings)
        if "row" in field.metadata
    )


def with_prefix(texts: Mapping[str, str] | None, prefix: str) -> dict[str, str]:
    """Return the entries whose name begins with ``prefix``; others do not belong to Carpool."""
    return {name: text for name, text in (texts or {}).items() if name.startswith(prefix)}


def read(known: Mapping[str, Row], texts: Mapping[str, str], problems: Problems) -> dict[str, Any]:
    """Return the values of texts by field; add a problem for each that cannot be read.

    Args:
        known: rows by their names in ``texts``.
        texts: texts by name, as a user wrote them.
        problems: gets every unknown name and ill-formed value.
    """
    values: dict[str, Any] = {}
    for name, text in sorted(texts.items()):
        if name not in known:
            problems.unknown(name, known, text)
            continue
        before = len(problems)
        value = read_value(known[name].value_type, name, text, problems)
        if len(problems) == before:
            values[known[name].field] = value
    return values


def read_variables(
    settings: Any,  # noqa: ANN401  as above
    env: Mapping[str, str],
    prefix: str,
    problems: Problems,
) -> dict[str, Any]:
    """Return the values of a process's settings in its environment, by field.

    Args:
        settings: the dataclass that declares them.
        env: the environment.
        prefix: prefix that only Carpool's variables have, so that an unknown one is a mistake.
        problems: gets every unknown name and ill-formed value.
    """
    known = {row.env: row for row in rows(settings)}
    unknown = {n: text for n, text in env.items() if n.startswith(prefix) and n not in known}
    given = {name: text for name in known if (text := env.get(name, "").strip())}
    return read(known, {**unknown, **given}, problems)


def read_value(value_type: SettingType, name: str, text: str | None, problems: Problems) -> Any:  # noqa: ANN401  as above
    """Return the value of a user's text for ``name``; add a problem and return None if invalid.

    No text gives None as well, and no problem.
    """
    if text is None:
        return None
    try:
        value = value_type.read(text)
    except ConfigError as error:
        problems.extend(name, error)
        return None
    except ValueError as error:
        problems.add(name, text, value_type.expected, _reason(error))
        return None
    if not value_type.accepts(value):
        problems.add(name, text, value_type.expected)
        return None
    return value


def _reason(error: ValueError) -> str:
    """Return the message of a JSON reader; empty for other types, whose expectation suffices."""
    return str(error) if isinstance(error, rules.NotJsonError) else ""
