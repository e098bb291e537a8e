"""The one way to declare a setting: a dataclass field, with its name, kind, default and meaning.

`setting` declares a setting of a function: the key ``slo.percentile`` is the label or annotation
``com.carpool.slo.percentile`` and the environment variable ``carpool_slo_percentile``; one rule, no
exceptions, and a prefix that cannot collide with the function's own environment. `variable`
declares a setting of a process, which is an environment variable and nothing else. Reading, the
tables of the documentation and `carpool doctor` go by these declarations; which settings there are
is not known here.
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
    """One line of a table of settings.

    Attributes:
        field: of the settings object.
        env: name of the environment variable.
        kind: of its values.
        default: what holds where nothing is said.
        unset: what holds, in words, where the default does not say it.
        meaning: for the documentation.
        key: what a function's label is named by; empty: it is a process's setting.
        annotation_only: it may not be a label.
    """

    field: str
    env: str
    kind: SettingType
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
        """The default as a user would write it, or the words for leaving it out."""
        return self.unset or self.kind.write(self.default)


def setting(
    key: str,
    kind: SettingType,
    default: Any,  # noqa: ANN401  each row's field has its own type
    meaning: str,
    *,
    unset: str = "",
    annotation_only: bool = False,
) -> Any:  # noqa: ANN401  stands for the field's own type, as dataclasses.field does
    """Declare a setting of a function.

    Args:
        key: the last part of the label's name.
        kind: of its values.
        default: what holds where nothing is said.
        meaning: for the documentation.
        unset: the word for having no value.
        annotation_only: it is too long, or of characters, that a label may not have.
    """
    env = ENV_PREFIX + key.replace(".", "_")
    return _field(Row("", env, kind, default, unset, meaning, key, annotation_only))


def variable(
    env: str,
    kind: SettingType,
    default: Any,  # noqa: ANN401  each row's field has its own type
    meaning: str,
    *,
    unset: str = "",
) -> Any:  # noqa: ANN401  stands for the field's own type, as dataclasses.field does
    """Declare a setting of a process.

    Args:
        env: the environment variable's name.
        kind: of its values.
        default: what holds where the variable is empty or not there.
        meaning: for the documentation.
        unset: what holds then, in words, where it depends on other settings.
    """
    return _field(Row("", env, kind, default, unset, meaning))


def _field(row: Row) -> Any:  # noqa: ANN401  as above
    if isinstance(row.default, dict):
        return dataclasses.field(default_factory=dict, metadata={"row": row})
    return dataclasses.field(default=row.default, metadata={"row": row})


@functools.cache
def rows(settings: Any) -> tuple[Row, ...]:  # noqa: ANN401  mypy finds types unhashable
    """The settings that a dataclass declares, in the order of its fields."""
    return tuple(
        dataclasses.replace(field.metadata["row"], field=field.name)
        for field in dataclasses.fields(settings)
        if "row" in field.metadata
    )


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
            continue
        before = len(problems)
        value = read_value(known[name].kind, name, text, problems)
        if len(problems) == before:
            values[known[name].field] = value
    return values


def read_variables(
    settings: Any,  # noqa: ANN401  as above
    env: Mapping[str, str],
    prefix: str,
    problems: Problems,
) -> dict[str, Any]:
    """The values of a process's settings that its environment says, by field.

    Args:
        settings: the dataclass that declares them.
        env: the environment.
        prefix: of names that are nobody else's, so that an unknown one is a mistake.
        problems: gets every unknown name and ill-formed value.
    """
    known = {row.env: row for row in rows(settings)}
    unknown = {n: text for n, text in env.items() if n.startswith(prefix) and n not in known}
    said = {name: text for name in known if (text := env.get(name, "").strip())}
    return read(known, {**unknown, **said}, problems)


def read_value(kind: SettingType, name: str, text: str, problems: Problems) -> Any:  # noqa: ANN401  as above
    """What a text says that a user gave for ``name``; None, and a problem, if it cannot be read."""
    try:
        value = kind.read(text)
    except ConfigError as error:
        problems.extend(name, error)
        return None
    except ValueError as error:
        problems.add(name, text, kind.expected, _reason(error))
        return None
    if not kind.accepts(value):
        problems.add(name, text, kind.expected)
        return None
    return value


def _reason(error: ValueError) -> str:
    """What a JSON reader has to say; the other kinds' expectation says it all."""
    return str(error) if isinstance(error, rules.NotJsonError) else ""
