"""A row of the settings table: one rule for its names, and one for reading values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from carpool import setting_spec, setting_types, settings
from carpool.setting_spec import Row, variable
from carpool.settings import FunctionSettings
from carpool.validation.problems import Problems
from sidecar.options import Options
from watchdog_plugin.settings import HandlerSettings

SEATS = Row(
    field="seats",
    env="carpool_car_seats",
    value_type=setting_types.integer("a whole number of at least 1", lambda value: value >= 1),
    default=4,
    unset="",
    meaning="How many ride.",
    key="car.seats",
)


def _read(**texts: str) -> tuple[dict[str, Any], list[str]]:
    problems = Problems()
    values = setting_spec.read({SEATS.env: SEATS}, texts, problems)
    return values, [str(problem) for problem in problems.found]


def test_label_maps_to_variable_by_one_rule() -> None:
    """``com.carpool.X.Y`` is ``carpool_x_y`` for every setting, without exception."""
    for row in settings.rows():
        assert row.env == row.label.replace("com.", "", 1).replace(".", "_")


def test_valid_text_is_parsed_by_kind() -> None:
    """A valid value is read according to the row's kind, without a problem."""
    assert ({"seats": 5}, []) == _read(carpool_car_seats="5")
    assert ({}, []) == _read()


def test_invalid_name_or_value_is_reported() -> None:
    """Unknown names, malformed values and values out of range are reported with the expectation."""
    for texts, expected in (
        ({"carpool_car_seat": "5"}, "did you mean 'carpool_car_seats'?"),
        ({"carpool_car_seats": "five"}, "a whole number of at least 1"),
        ({"carpool_car_seats": "0"}, "a whole number of at least 1"),
    ):
        values, (problem,) = _read(**texts)
        assert {} == values
        assert expected in problem


def test_names_without_the_prefix_are_ignored() -> None:
    """Only names with the prefix are read, and missing labels give none."""
    texts = {"carpool_slo": "1s", "PATH": "/bin", "my_carpool_slo": "2s"}
    assert {"carpool_slo": "1s"} == setting_spec.with_prefix(texts, setting_spec.ENV_PREFIX)
    assert {} == setting_spec.with_prefix(None, setting_spec.LABEL_PREFIX)


@dataclass(frozen=True)
class Car:
    """Settings of a process, with one field that is not a setting."""

    seats: int = variable("car_seats", SEATS.value_type, 4, "How many ride.")
    name: str = variable("NAME", setting_types.text(), "", "Whose it is.", unset="nobody's")
    rides: int = 0


def _car(**env: str) -> tuple[dict[str, Any], list[str]]:
    problems = Problems()
    values = setting_spec.read_variables(Car, env, "car_", problems)
    return values, [str(problem) for problem in problems.found]


def test_settings_are_read_from_environment_variables() -> None:
    """An empty variable counts as unset, and other variables are ignored."""
    assert ({"seats": 5, "name": "Ada"}, []) == _car(car_seats=" 5 ", NAME="Ada", PATH="/bin")
    assert ({}, []) == _car(car_seats="", NAME=" ")
    (problem,) = _car(car_seat="")[1]
    assert "did you mean 'car_seats'?" in problem


def test_dataclass_fields_become_table_rows() -> None:
    """Rows are in the order of the fields, with defaults as users write them, or in words."""
    assert [("seats", "car_seats", "4"), ("name", "NAME", "nobody's")] == [
        (row.field, row.env, row.default_text) for row in setting_spec.rows(Car)
    ]


@pytest.mark.parametrize("settings_class", [FunctionSettings, Options, HandlerSettings])
def test_documented_default_is_parsed_as_the_default(settings_class: Any) -> None:
    """The documented text of a default is read as that default."""
    for row in setting_spec.rows(settings_class):
        if not row.unset and row.default_text:
            assert row.default == row.value_type.read(row.default_text), row.env
