"""A row of the settings table: one rule for its names, one for reading texts."""

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
    kind=setting_types.integer("a whole number of at least 1", lambda value: value >= 1),
    default=4,
    unset="",
    meaning="How many ride.",
    key="car.seats",
)


def _read(**texts: str) -> tuple[dict[str, Any], list[str]]:
    problems = Problems()
    values = setting_spec.read({SEATS.env: SEATS}, texts, problems)
    return values, [str(problem) for problem in problems.found]


def test_one_rule_leads_from_label_to_variable() -> None:
    """``com.carpool.X.Y`` is ``carpool_x_y``, for every setting and without an exception."""
    for row in settings.rows():
        assert row.env == row.label.replace("com.", "", 1).replace(".", "_")


def test_a_text_becomes_the_value_of_its_field() -> None:
    """What is well-formed is read by the row's kind, and no problem is noted."""
    assert ({"seats": 5}, []) == _read(carpool_car_seats="5")
    assert ({}, []) == _read()


def test_what_cannot_be_read_is_a_problem_and_no_value() -> None:
    """Unknown, ill-formed and out of range: each is named with what was expected."""
    for texts, expected in (
        ({"carpool_car_seat": "5"}, "did you mean 'carpool_car_seats'?"),
        ({"carpool_car_seats": "five"}, "a whole number of at least 1"),
        ({"carpool_car_seats": "0"}, "a whole number of at least 1"),
    ):
        values, (problem,) = _read(**texts)
        assert {} == values
        assert expected in problem


def test_other_peoples_names_are_left_alone() -> None:
    """Only names with the prefix count; no labels at all are none."""
    texts = {"carpool_slo": "1s", "PATH": "/bin", "my_carpool_slo": "2s"}
    assert {"carpool_slo": "1s"} == setting_spec.with_prefix(texts, setting_spec.ENV_PREFIX)
    assert {} == setting_spec.with_prefix(None, setting_spec.LABEL_PREFIX)


@dataclass(frozen=True)
class Car:
    """A process's settings, and a field that is none."""

    seats: int = variable("car_seats", SEATS.kind, 4, "How many ride.")
    name: str = variable("NAME", setting_types.text(), "", "Whose it is.", unset="nobody's")
    rides: int = 0


def _car(**env: str) -> tuple[dict[str, Any], list[str]]:
    problems = Problems()
    values = setting_spec.read_variables(Car, env, "car_", problems)
    return values, [str(problem) for problem in problems.found]


def test_a_process_has_its_settings_by_the_names_of_its_variables() -> None:
    """A variable that is empty says nothing; those of others are left alone."""
    assert ({"seats": 5, "name": "Ada"}, []) == _car(car_seats=" 5 ", NAME="Ada", PATH="/bin")
    assert ({}, []) == _car(car_seats="", NAME=" ")
    (problem,) = _car(car_seat="")[1]
    assert "did you mean 'car_seats'?" in problem


def test_a_dataclass_declares_its_table() -> None:
    """In the order of its fields; defaults as a user would write them, or in words."""
    assert [("seats", "car_seats", "4"), ("name", "NAME", "nobody's")] == [
        (row.field, row.env, row.default_text) for row in setting_spec.rows(Car)
    ]


@pytest.mark.parametrize("settings_class", [FunctionSettings, Options, HandlerSettings])
def test_every_default_is_one_that_can_be_said(settings_class: Any) -> None:
    """What the documentation shows as a default is read as that default."""
    for row in setting_spec.rows(settings_class):
        if not row.unset and row.default_text:
            assert row.default == row.kind.read(row.default_text), row.env
