"""A function with the executor `lazy`, loaded from its folder and called concurrently."""

from __future__ import annotations

import json
import math
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import TensorProto, helper

from carpool import wire
from tests.watchdog_plugin import models
from tests.watchdog_plugin.cutting import cut
from watchdog_plugin import loading
from watchdog_plugin.batch_runner import BatchRunner, Concurrent
from watchdog_plugin.function import LoadError
from watchdog_plugin.item import Item
from watchdog_plugin.service import Service
from watchdog_plugin.settings import HandlerSettings

if TYPE_CHECKING:
    from pathlib import Path

HEAD = wire.build_head("POST /", ())
STAGED = '{"pays": false}'  # in its stages, though so small a model gains nothing by them


def load(folder: Path, executor: str = "lazy", **env: str) -> BatchRunner:
    """Load the function in ``folder``."""
    told = {"function_dir": str(folder), "carpool_executor": executor, "carpool_batch_max": "4"}
    return BatchRunner(
        loading.load(HandlerSettings.from_env({**told, **env})).function, Concurrent()
    )


def ask(engine: BatchRunner, rows: list[list[float]]) -> tuple[int, object]:
    """Send one request as JSON and return the status and document of its response."""
    body = json.dumps({"instances": rows}).encode()
    (answer,) = engine.answer([Item(memoryview(body), HEAD, math.inf)]).answers
    return answer.status, json.loads(bytes(answer.body))


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """Folder of a function with a staged model."""
    path = models.deep(tmp_path / "model.onnx")
    cut(path, 3, tmp_path / "stages")
    return tmp_path


def test_statistics_hold_no_size_above_largest_batch(deep: Path) -> None:
    """A long request counts as several executions, so statistics hold no size above the limit."""
    engine = load(deep, handler_lazy_rules=STAGED)
    for count in (1, 4, 5, 11, 11):
        assert 200 == ask(engine, [[0.5] * 16] * count)[0]
    line = wire.build_head("GET /v2/models/model/stats", ())
    (answer,) = engine.answer([Item(memoryview(b""), line, math.inf)]).answers
    (stats,) = json.loads(bytes(answer.body))["model_stats"]
    counts = {each["batch_size"]: each["compute_infer"]["count"] for each in stats["batch_stats"]}
    assert {1: 2, 3: 2, 4: 6} == counts
    assert (32, 10) == (stats["inference_count"], stats["execution_count"])


def test_concurrent_batches_get_their_own_responses(deep: Path) -> None:
    """Each response equals that of the whole model, whatever batch the request ran in."""
    lazy, whole = load(deep, handler_lazy_rules=STAGED), load(deep, "graph")
    found: dict[int, tuple[int, object]] = {}

    def call(number: int) -> None:
        found[number] = ask(lazy, [[number / 10 + place for place in range(16)]])

    threads = [threading.Thread(target=call, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for number, (status, told) in found.items():
        expected = ask(whole, [[number / 10 + place for place in range(16)]])[1]
        assert 200 == status
        assert isinstance(expected, dict)
        assert isinstance(told, dict)
        assert pytest.approx(expected["predictions"][0], rel=1e-5) == told["predictions"][0]


def test_request_above_largest_batch_runs_in_parts(deep: Path) -> None:
    """Nine rows with a limit of four give one response."""
    _, told = ask(load(deep, handler_lazy_rules=STAGED), [[1.0] * 16] * 9)

    assert isinstance(told, dict)
    assert 9 == len(told["predictions"])


def test_readiness_reports_concurrency(deep: Path) -> None:
    """The concurrency is 1.5 times the largest batch, and 1 with the executor `graph`."""
    service = Service()
    service.open(load(deep, handler_lazy_rules=STAGED))
    lazy = load(deep, handler_lazy_rules=STAGED).concurrency

    assert 6 == lazy
    assert 1 == load(deep, "graph").concurrency


def test_index_outside_table_fails_only_its_request(tmp_path: Path) -> None:
    """The other requests in the same stage are answered."""
    models.lookup(tmp_path / "model.onnx")
    engine = load(tmp_path)
    bodies = [json.dumps({"instances": [index]}).encode() for index in (3, 99, 4)]
    answers = engine.answer([Item(memoryview(b), HEAD, math.inf) for b in bodies]).answers

    assert [200, 400, 200] == [answer.status for answer in answers]


@pytest.mark.parametrize("executor", ["lazy", "graph"])
def test_step_by_step_model_is_same_with_both_executors(recurrent: Path, executor: str) -> None:
    """The input sets the number of words, and both executors give the same response."""
    engine = load(recurrent, executor)
    bodies = [
        json.dumps({"inputs": [{"name": "tokens", "datatype": "INT64", "shape": [1, 16],
                                "data": [length, *range(15)]}]}).encode()
        for length in (3, 1, 5)
    ]  # fmt: skip
    answers = engine.answer([Item(memoryview(b), HEAD, math.inf) for b in bodies]).answers
    told = [json.loads(bytes(answer.body))["outputs"] for answer in answers]

    assert [200] * 3 == [answer.status for answer in answers]
    assert [[1, 3], [1, 1], [1, 5]] == [outputs[0]["shape"] for outputs in told]
    assert {"word", "score"} == {output["name"] for output in told[0]}


def test_other_arrays_of_author_step_are_the_response(tmp_path: Path) -> None:
    """The arrays that a step returns besides its state are the response."""
    models.doubler(tmp_path / "model.onnx")
    (tmp_path / "handler.py").write_text(
        "steps_max = 9\n"
        "def decode_step(state):\n"
        "    y = state['y']\n"
        "    return {'next.y': y - 2, 'done': (y <= 2).all(1), 'first': y[:, 0]}\n"
    )
    _, told = ask(load(tmp_path), [[3, 1, 2]])

    assert {"predictions": [[6, 4, 2]]} == told


def test_step_without_next_state_and_end_is_refused_at_loading(tmp_path: Path) -> None:
    """The message names the expected arrays."""
    models.doubler(tmp_path / "model.onnx")
    (tmp_path / "handler.py").write_text("def decode_step(state):\n    return {'z': state['y']}\n")

    with pytest.raises(LoadError, match=r"next\.X"):
        load(tmp_path)


def test_misspelt_rule_is_refused(deep: Path) -> None:
    """The error for a misspelt rule names the rules."""
    with pytest.raises(Exception, match="estimate"):
        load(deep, handler_lazy_rules='{"estimates": "serial"}')
    assert 200 == ask(load(deep, handler_lazy_rules='{"pays": false}'), [[1.0] * 16])[0]


STEP = """import numpy as np

def decode_step(state):
    y = state["y"]
    if (y[:, 0] == 26).any():
        {fault}
    return {{"next.y": y - 2, "done": (y <= 2).all(1), "first": {first}}}
"""


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("raise ValueError('thirteen')", "thirteen"),
        ("raise SystemExit(3)", "SystemExit"),
        ("return None", "expected a dict"),
        ("return {'next.y': y, 'done': (y <= 2).all(1)}", "but not first"),
        ("y = np.concatenate([y, y])", "expected a row for each"),
        ("return {'done': y[:, 0] > 0, 'first': y}", "expected rows of"),
    ],
)
def test_failing_step_fails_only_its_sequence(tmp_path: Path, fault: str, told: str) -> None:
    """The other requests of the batch and later requests are answered, whatever the fault."""
    models.doubler(tmp_path / "model.onnx")
    (tmp_path / "handler.py").write_text(STEP.format(fault=fault, first="y[:, 0]"))
    engine = load(tmp_path)
    bodies = [json.dumps({"instances": [[n, n, n]]}).encode() for n in (2, 13, 3)]
    answers = engine.answer([Item(memoryview(b), HEAD, math.inf) for b in bodies]).answers

    assert [200, 500, 200] == [answer.status for answer in answers]
    assert told in bytes(answers[1].body).decode()
    assert 200 == ask(engine, [[1, 1, 1]])[0]


def test_a_step_may_make_lists(tmp_path: Path) -> None:
    """A list that a step returns is converted to an array."""
    models.doubler(tmp_path / "model.onnx")
    step = STEP.format(fault="pass", first="y[:, 0].tolist()")
    (tmp_path / "handler.py").write_text(step)

    assert (200, {"predictions": [[4, 2]]}) == ask(load(tmp_path), [[2, 2, 2]])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("raise ValueError('boom')", r"first step with y \(2, 3\).*boom"),
        ("return [1]", "expected a dict of arrays"),
        ("return {'done': state['y'][:, 0] > 0, 'first': 1}", "first int64 .* expected a row"),
    ],
)
def test_step_that_fails_its_first_try_prevents_start(tmp_path: Path, body: str, told: str) -> None:
    """The message names the input of the step and what was expected."""
    models.doubler(tmp_path / "model.onnx")
    (tmp_path / "handler.py").write_text(f"def decode_step(state):\n    {body}\n")

    with pytest.raises(LoadError, match=told):
        load(tmp_path)


def test_model_that_fails_in_trials_runs_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A free dimension that must be a multiple of five fails in trials but not in requests."""
    models.save(
        tmp_path / "model.onnx",
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        {"x": (TensorProto.FLOAT, ["batch", "n"])},
        {"y": (TensorProto.FLOAT, ["batch", 5, "m"])},
        {"shape": np.array([0, 5, -1])},
    )
    engine = load(tmp_path)

    assert "runs whole" in capsys.readouterr().err
    assert 1 == engine.concurrency
    assert 200 == ask(engine, [[1.0] * 10])[0]


@pytest.mark.parametrize("rules", ['{"pays": 1}', '{"partial": null}', '{"overtaken_max": 1.5}'])
def test_rule_of_wrong_type_is_refused(deep: Path, rules: str) -> None:
    """A value that is only convertible to the type of the rule is refused."""
    with pytest.raises(Exception, match="handler_lazy_rules"):
        load(deep, handler_lazy_rules=rules)
