"""Statistics of a model's requests and executions."""

from __future__ import annotations

from watchdog_plugin.protocols.statistics import Statistics, Times


def test_requests_and_executions_are_counted_apart() -> None:
    """A batch's times count for each request, and an execution's time once, by its rows."""
    statistics = Statistics(lambda: 1700000000.5)
    statistics.executed(5, 300)
    statistics.executed(5, 500)
    statistics.executed(2, 100)
    statistics.answered(Times(1000, 1010, 1050, 2000, 2005), done=3, failed=1)
    found = statistics.to_dict()
    assert (1700000000500, 12, 3) == tuple(
        found[name] for name in ("last_inference", "inference_count", "execution_count")
    )
    assert {
        "success": {"count": 3, "ns": 3015},
        "fail": {"count": 1, "ns": 1005},
        "queue": {"count": 3, "ns": 120},
        "compute_input": {"count": 3, "ns": 30},
        "compute_infer": {"count": 3, "ns": 2850},
        "compute_output": {"count": 3, "ns": 15},
    } == found["inference_stats"]
    assert [
        {"batch_size": 2, "compute_infer": {"count": 1, "ns": 100}},
        {"batch_size": 5, "compute_infer": {"count": 2, "ns": 800}},
    ] == found["batch_stats"]


def test_metadata_requests_are_not_counted() -> None:
    """Requests for metadata or statistics are not counted."""
    statistics = Statistics(lambda: 5.0)
    before = statistics.to_dict()
    statistics.answered(Times(0, 1, 2, 3, 4), done=0, failed=0)
    assert before == statistics.to_dict()


def test_warm_up_is_not_counted() -> None:
    """After the warm-up the statistics are as before it."""
    statistics = Statistics(lambda: 5.0)
    before = statistics.to_dict()
    statistics.executed(1, 1)
    statistics.answered(Times(0, 1, 2, 3, 4), done=1, failed=0)
    statistics.clear()
    assert before == statistics.to_dict()
