"""Choice of a policy from a function's settings, also with other servers' parameter names."""

from __future__ import annotations

from typing import Any

import pytest

from carpool import plugins, policies_command
from carpool.errors import ConfigError
from carpool.settings import FunctionSettings
from sidecar.policies.choice import build_policy
from sidecar.policies.fixed import FixedWindow
from sidecar.policies.knobs import KNOBS
from sidecar.testing import Arrival, Drive, ScriptedFunction

REFUSED = [knob.name for knob in KNOBS if not knob.parameter]
QUICK = ScriptedFunction(lambda _: 0.0001)


def fixed(batch_max: int = 32, **params: Any) -> FunctionSettings:
    """Return settings with the policy `fixed`."""
    return FunctionSettings(batch_policy="fixed", batch_max=batch_max, batch_params=params)


def left(settings: FunctionSettings, arrivals: list[Arrival]) -> list[tuple[float, int]]:
    """Return the departure time in milliseconds and the size of each batch."""
    drive = Drive(build_policy(settings), QUICK, batch_max=settings.batch_max)
    drive.run(arrivals)
    return [(round(1000 * ran.at, 3), ran.size) for ran in drive.batches]


@pytest.mark.parametrize(
    ("foreign", "own"),
    [
        ({"max_queue_delay_microseconds": 2000}, {"wait_s": 0.002}),
        ({"max_queue_delay_microseconds": 0}, {"wait_s": 0.0}),
        ({"batch_timeout_micros": 1_500_000}, {"wait_s": 1.5}),
        ({"max_batch_size": 16}, {"size": 16}),
        ({"preferred_batch_size": 16}, {"size": 16}),
        ({"preferred_batch_size": [16]}, {"size": 16}),
        ({"preferred_batch_size": [4, 16]}, {"size": [4, 16]}),
        (
            {"preferred_batch_size": [16], "max_queue_delay_microseconds": 2000},
            {"size": 16, "wait_s": 0.002},
        ),
        (
            {"max_batch_size": 32, "batch_timeout_micros": 5000},
            {"size": 32, "wait_s": 0.005},
        ),
    ],
)
def test_translated_parameters_give_same_batches(
    foreign: dict[str, Any], own: dict[str, Any]
) -> None:
    """A policy with translated parameters sends the same batches at the same times."""
    load = [Arrival(0.0003 * i) for i in range(40)]
    assert left(fixed(**own), load) == left(fixed(**foreign), load)


def test_microseconds_are_converted_to_milliseconds() -> None:
    """2000 microseconds are converted to 2 ms."""
    assert [(2.0, 1)] == left(fixed(max_queue_delay_microseconds=2000), [Arrival(0.0)])


def test_largest_reachable_preferred_size_is_sent() -> None:
    """The largest reachable preferred size leaves at once; at the window's end the rest leaves."""
    settings = fixed(preferred_batch_size=[8, 4], max_queue_delay_microseconds=10_000)
    assert [(0.0, 4), (10.0, 2)] == left(settings, [Arrival(0.0)] * 6)
    assert [(0.0, 8), (10.0, 3)] == left(settings, [Arrival(0.0)] * 11)
    slow = ScriptedFunction(lambda _: 0.02)
    drive = Drive(build_policy(settings), slow)
    drive.run([*[Arrival(0.0)] * 4, *[Arrival(0.001)] * 6])
    assert [4, 6] == [ran.size for ran in drive.batches]


def test_preferred_size_is_capped_at_maximum_batch_size() -> None:
    """A preferred size above the maximum batch size counts as that maximum."""
    policy = FixedWindow(FixedWindow.Params(size=[4, 16], wait_s=0.01))
    drive = Drive(policy, QUICK, batch_max=8)
    drive.run([Arrival(0.0)] * 8)
    assert [8] == [ran.size for ran in drive.batches]


@pytest.mark.parametrize("name", REFUSED)
def test_foreign_option_without_counterpart_is_refused_with_hint(name: str) -> None:
    """A foreign option without a counterpart is refused with a hint at the right setting."""
    with pytest.raises(ConfigError) as caught:
        build_policy(fixed(**{name: 4}))
    (problem,) = caught.value.problems
    assert (name, "4") == (problem.name, problem.value)
    assert problem.hint


def test_hint_names_the_setting() -> None:
    """The hints name the settings for queue length and number of instances."""
    with pytest.raises(ConfigError) as caught:
        build_policy(fixed(max_enqueued_batches=100, num_batch_threads=2))
    hints = [problem.hint for problem in caught.value.problems]
    assert "com.carpool.queue.max" in hints[0]
    assert "com.carpool.scale.min" in hints[1]


@pytest.mark.parametrize(
    ("params", "names", "detail"),
    [
        ({"size": 8, "max_batch_size": 8}, ["max_batch_size"], "size is set too"),
        (
            {"max_batch_size": 8, "preferred_batch_size": [4]},
            ["preferred_batch_size"],
            "max_batch_size is set too",
        ),
        (
            {"batch_timeout_micros": 1, "max_queue_delay_microseconds": 1, "wait_s": 1},
            ["batch_timeout_micros", "max_queue_delay_microseconds"],
            "wait_s is set too",
        ),
        ({"max_batch_size": 0}, ["max_batch_size"], "at least 1"),
        ({"max_batch_size": True}, ["max_batch_size"], "at least 1"),
        ({"max_batch_size": "8"}, ["max_batch_size"], "at least 1"),
        ({"preferred_batch_size": []}, ["preferred_batch_size"], "or a list of them"),
        ({"preferred_batch_size": [4, 0.5]}, ["preferred_batch_size"], "or a list of them"),
        ({"batch_timeout_micros": -1}, ["batch_timeout_micros"], "whole microseconds"),
        ({"batch_timeout_micros": 0.5}, ["batch_timeout_micros"], "whole microseconds"),
        ({"prefered_batch_size": 4}, ["prefered_batch_size"], "'preferred_batch_size'"),
        ({"max_batch_size": 0, "siez": 3}, ["max_batch_size", "siez"], "did you mean 'size'"),
        ({"size": []}, ["size"], "at least 1 each"),
        ({"size": [0]}, ["size"], "at least 1 each"),
        ({"size": ["4"]}, ["size"], "int | list[int]"),
        ({"max_batch_size": 64}, ["batch.params"], "set batch.max to 64"),
        ({"preferred_batch_size": [16, 33]}, ["batch.params"], "set batch.max to 33"),
        ({"size": 33}, ["batch.params"], "batches of at most batch.max, which is 32"),
    ],
)
def test_duplicate_invalid_and_unreachable_values_are_errors(
    params: dict[str, Any], names: list[str], detail: str
) -> None:
    """Duplicate names, invalid values and unreachable batch sizes are errors."""
    with pytest.raises(ConfigError) as caught:
        build_policy(fixed(**params))
    assert names == [problem.name for problem in caught.value.problems]
    assert detail in str(caught.value)


def test_policy_size_within_batch_max_is_accepted() -> None:
    """A size that batch.max allows is accepted."""
    assert [(0.0, 64)] == left(fixed(batch_max=64, max_batch_size=64), [Arrival(0.0)] * 64)


@pytest.mark.parametrize("name", ["wait_s", "batch_timeout_micros", "max_queue_delay_microseconds"])
def test_window_set_twice_is_error(name: str) -> None:
    """batch.wait together with a window in the parameters is an error."""
    settings = FunctionSettings(
        batch_policy="fixed", batch_wait_s=0.01, batch_params={"size": 4, name: 5}
    )
    with pytest.raises(ConfigError, match=rf"^batch.wait = '10ms'.* {name} too"):
        build_policy(settings)


def test_batch_wait_sets_policy_window() -> None:
    """batch.wait is passed to the policy beside other parameters."""
    settings = FunctionSettings(
        batch_policy="fixed", batch_wait_s=0.003, batch_params={"max_batch_size": 4}
    )
    assert [(3.0, 2)] == left(settings, [Arrival(0.0)] * 2)


@pytest.mark.parametrize("policy", ["none", "deadline", "tests.carpool.plugin_samples:Formless"])
def test_batch_wait_is_error_for_policy_without_window(policy: str) -> None:
    """batch.wait is an error for a policy without a window, which would ignore it."""
    with pytest.raises(ConfigError, match="has no window"):
        build_policy(FunctionSettings(batch_policy=policy, batch_wait_s=0.01))


def test_only_fixed_policy_translates_foreign_names() -> None:
    """Only `fixed` translates foreign parameter names."""
    assert {} == plugins.knobs(plugins.resolve("batch", "adaptive"))
    with pytest.raises(ConfigError, match="max_batch_size"):
        build_policy(FunctionSettings(batch_policy="adaptive", batch_params={"max_batch_size": 4}))


def test_command_lists_foreign_parameter_names(capsys: pytest.CaptureFixture[str]) -> None:
    """`carpool policies` lists foreign names with their own parameters."""
    assert 0 == policies_command.main([])
    assert "batch_timeout_micros (wait_s)" in capsys.readouterr().out


def test_import_error_of_policy_names_label_and_fix() -> None:
    """The error names the label and says where to put the policy's file."""
    with pytest.raises(ConfigError) as raised:
        build_policy(FunctionSettings(batch_policy="no_such_module:Pairs"))
    said = "com.carpool.batch.policy = 'no_such_module:Pairs': expected an importable pkg.module:"
    fix = "No module named 'no_such_module'; put its file into the function's folder or on PYTHON"
    assert str(raised.value).startswith(said)
    assert fix in str(raised.value)
    with pytest.raises(ConfigError, match=r"has no attribute 'Pairs'$"):
        build_policy(FunctionSettings(batch_policy="json:Pairs"))
