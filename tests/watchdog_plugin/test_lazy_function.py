"""A function with the executor `lazy`, loaded from its folder and called by several at once."""

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
    """The function in ``folder``."""
    told = {"function_dir": str(folder), "carpool_executor": executor, "carpool_batch_max": "4"}
    return BatchRunner(
        loading.load(HandlerSettings.from_env({**told, **env})).function, Concurrent()
    )


def ask(engine: BatchRunner, rows: list[list[float]]) -> tuple[int, object]:
    """One request as JSON; its status and what it was told."""
    body = json.dumps({"instances": rows}).encode()
    (answer,) = engine.answer([Item(memoryview(body), HEAD, math.inf)]).answers
    return answer.status, json.loads(bytes(answer.body))


@pytest.fixture
def deep(tmp_path: Path) -> Path:
    """A function of a model in stages."""
    path = models.deep(tmp_path / "model.onnx")
    cut(path, 3, tmp_path / "stages")
    return tmp_path


def test_statistics_have_as_many_sizes_as_batches_can_have(deep: Path) -> None:
    """A long request is several executions; how long requests are is up to callers."""
    engine = load(deep, handler_lazy_rules=STAGED)
    for count in (1, 4, 5, 11, 11):
        assert 200 == ask(engine, [[0.5] * 16] * count)[0]
    line = wire.build_head("GET /v2/models/model/stats", ())
    (answer,) = engine.answer([Item(memoryview(b""), line, math.inf)]).answers
    (stats,) = json.loads(bytes(answer.body))["model_stats"]
    counts = {each["batch_size"]: each["compute_infer"]["count"] for each in stats["batch_stats"]}
    assert {1: 2, 3: 2, 4: 6} == counts
    assert (32, 10) == (stats["inference_count"], stats["execution_count"])


def test_many_batches_at_once_each_get_their_own_answers(deep: Path) -> None:
    """Those of the whole model, in any batch."""
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


def test_a_request_of_more_rows_than_a_batch_may_have_runs_in_parts(deep: Path) -> None:
    """Nine rows where four are the most; one answer."""
    _, told = ask(load(deep, handler_lazy_rules=STAGED), [[1.0] * 16] * 9)

    assert isinstance(told, dict)
    assert 9 == len(told["predictions"])


def test_readiness_says_how_many_batches_it_takes_at_once(deep: Path) -> None:
    """Half as many again as its largest batch; one with the executor graph, which goes unsaid."""
    service = Service()
    service.open(load(deep, handler_lazy_rules=STAGED))
    lazy = load(deep, handler_lazy_rules=STAGED).concurrency

    assert 6 == lazy
    assert 1 == load(deep, "graph").concurrency


def test_a_row_that_no_table_has_is_its_own_requests_fault(tmp_path: Path) -> None:
    """The neighbour in the same stage is answered."""
    models.lookup(tmp_path / "model.onnx")
    engine = load(tmp_path)
    bodies = [json.dumps({"instances": [index]}).encode() for index in (3, 99, 4)]
    answers = engine.answer([Item(memoryview(b), HEAD, math.inf) for b in bodies]).answers

    assert [200, 400, 200] == [answer.status for answer in answers]


@pytest.mark.parametrize("executor", ["lazy", "graph"])
def test_a_model_that_runs_step_by_step(recurrent: Path, executor: str) -> None:
    """As many words as the input asks for, and the same ones with either executor."""
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


def test_a_step_of_the_authors_own(tmp_path: Path) -> None:
    """Counts down from the input: what it makes beside its state is the answer."""
    models.doubler(tmp_path / "model.onnx")
    (tmp_path / "handler.py").write_text(
        "steps_max = 9\n"
        "def decode_step(state):\n"
        "    y = state['y']\n"
        "    return {'next.y': y - 2, 'done': (y <= 2).all(1), 'first': y[:, 0]}\n"
    )
    _, told = ask(load(tmp_path), [[3, 1, 2]])

    assert {"predictions": [[6, 4, 2]]} == told


def test_a_step_that_names_no_end_is_refused_before_the_first_request(tmp_path: Path) -> None:
    """The message says which names are expected."""
    models.doubler(tmp_path / "model.onnx")
    (tmp_path / "handler.py").write_text("def decode_step(state):\n    return {'z': state['y']}\n")

    with pytest.raises(LoadError, match=r"next\.X"):
        load(tmp_path)


def test_rules_are_read_strictly(deep: Path) -> None:
    """A misspelt one is an error that names those there are."""
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
        ("return {'next.y': y, 'done': (y <= 2).all(1)}", "expected first too"),
        ("y = np.concatenate([y, y])", "expected a row for each"),
        ("return {'done': y[:, 0] > 0, 'first': y}", "expected rows of"),
    ],
)
def test_a_step_that_fails_on_one_sequence_fails_for_that_one(
    tmp_path: Path, fault: str, told: str
) -> None:
    """Whatever it does wrong, the others and later requests are answered."""
    models.doubler(tmp_path / "model.onnx")
    (tmp_path / "handler.py").write_text(STEP.format(fault=fault, first="y[:, 0]"))
    engine = load(tmp_path)
    bodies = [json.dumps({"instances": [[n, n, n]]}).encode() for n in (2, 13, 3)]
    answers = engine.answer([Item(memoryview(b), HEAD, math.inf) for b in bodies]).answers

    assert [200, 500, 200] == [answer.status for answer in answers]
    assert told in bytes(answers[1].body).decode()
    assert 200 == ask(engine, [[1, 1, 1]])[0]


def test_a_step_may_make_lists(tmp_path: Path) -> None:
    """They are taken for the arrays that they are."""
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
def test_a_step_that_fails_on_its_first_try_keeps_the_function_from_starting(
    tmp_path: Path, body: str, told: str
) -> None:
    """The message says what it was given and what was expected."""
    models.doubler(tmp_path / "model.onnx")
    (tmp_path / "handler.py").write_text(f"def decode_step(state):\n    {body}\n")

    with pytest.raises(LoadError, match=told):
        load(tmp_path)


def test_a_model_that_fails_where_it_is_measured_runs_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its free dimension has to be a multiple of five: requests know that, trials do not."""
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
def test_rules_are_of_the_types_that_they_are_documented_with(deep: Path, rules: str) -> None:
    """What only looks like true or like a number is refused."""
    with pytest.raises(Exception, match="handler_lazy_rules"):
        load(deep, handler_lazy_rules=rules)
