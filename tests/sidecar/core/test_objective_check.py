"""A function that is slower than its objective is reported once."""

from __future__ import annotations

from sidecar.core.exec_time import ExecTime
from sidecar.core.objective_check import ObjectiveCheck, slower_than


class _Function:
    """Executes batches under an objective of 100 ms."""

    def __init__(self) -> None:
        self.reported: list[float] = []
        self.check = ObjectiveCheck(0.1, self.reported.append)
        self._exec_time = ExecTime()

    def run(self, size: int, exec_s: float, times: int) -> None:
        """Execute batches of ``size``."""
        for _ in range(times):
            self._exec_time.observe(size, exec_s)
            self.check.executed(size, self._exec_time)


def test_slow_function_is_reported_once_its_time_has_settled() -> None:
    """The first batches may be slow; after eight of them, the time is reported once."""
    function = _Function()
    function.run(1, 0.3, times=7)
    assert ([], 0.0) == (function.reported, function.check.exceeding_s)
    function.run(1, 0.3, times=9)
    assert [0.3] == [round(seconds, 6) for seconds in function.reported]
    assert 0.3 == round(function.check.exceeding_s, 6)


def test_function_within_its_objective_is_not_reported() -> None:
    """A time below the objective is not reported, nor that of larger batches."""
    function = _Function()
    function.run(1, 0.09, times=20)
    function.run(32, 0.3, times=20)
    assert ([], 0.0) == (function.reported, function.check.exceeding_s)


def test_time_is_not_extrapolated_from_large_batches() -> None:
    """If only full batches have run, the time of a single request is not known."""
    function = _Function()
    function.run(32, 0.3, times=20)
    assert ([], 0.0) == (function.reported, function.check.exceeding_s)


def test_function_that_becomes_faster_no_longer_exceeds() -> None:
    """After a lasting change the present time counts."""
    function = _Function()
    function.run(1, 0.3, times=20)
    function.run(1, 0.05, times=50)
    assert (1, 0.0) == (len(function.reported), function.check.exceeding_s)


def test_message_names_setting_both_times_and_fix() -> None:
    """The message names the setting, the objective, the measured time, and what to do."""
    assert (
        "com.carpool.slo = '100ms': expected more than 1.23s, the execution time of a single "
        "request; most requests are refused or late: set it to a few times that, or use a faster "
        "model"
    ) == str(slower_than("com.carpool.slo", 0.1, 1.23456))
