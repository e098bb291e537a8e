"""The setting `apps`: applications that share a function, as a JSON list."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from carpool import durations
from carpool.setting_types import SettingType
from carpool.validation import rules
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["App", "apps"]


@dataclass(frozen=True, slots=True)
class App:
    """An application that shares a function; requests name it in ``X-Carpool-App``."""

    name: str
    slo_s: float
    accuracy: float | None = None


def apps() -> SettingType:
    """Return the setting type for the applications that share a function, as a JSON list."""
    return SettingType(
        'a JSON list such as [{"name": "web", "slo": "200ms", "accuracy": 0.7}]',
        _read_apps,
        lambda value: all(isinstance(app, App) for app in value),
        _write_apps,
    )


_APP = rules.record(
    {
        # "*" names every application in a plan's routes.
        "name": rules.text("a name of letters, digits, '.', '_' or '-'", r"[A-Za-z0-9._-]{1,63}"),
        "slo": rules.text("a duration such as 200ms"),
        "accuracy": rules.number("a share from 0 to 1", lambda value: 0 <= value <= 1),
    },
    required=frozenset({"name", "slo"}),
)


def _read_apps(text: str) -> tuple[App, ...]:
    items = rules.loads(text)
    if not isinstance(items, list):
        raise ValueError(text)  # noqa: TRY004  the text is at fault, not a type
    rules.checked(rules.each(_APP, unique="name"), items)
    problems = Problems()
    apps = [_app(item, f"[{index}].slo", problems) for index, item in enumerate(items)]
    problems.raise_if_any()
    return tuple(apps)


def _app(item: Mapping[str, Any], path: str, problems: Problems) -> App:
    try:
        slo_s = durations.parse(item["slo"])
    except durations.DurationError:
        slo_s = 0.0
    if slo_s <= 0:
        problems.add(path, item["slo"], "a duration above zero such as 200ms")
    return App(item["name"], slo_s, item.get("accuracy"))


def _write_apps(value: Iterable[App]) -> str:
    apps = [_app_dict(app) for app in value]
    return json.dumps(apps, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _app_dict(app: App) -> dict[str, object]:
    data: dict[str, object] = {"name": app.name, "slo": durations.format(app.slo_s)}
    return data if app.accuracy is None else {**data, "accuracy": app.accuracy}
