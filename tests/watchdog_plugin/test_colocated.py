"""Several models in one function, called concurrently."""

from __future__ import annotations

import json
import math
import shutil
import threading
from typing import TYPE_CHECKING, Any

import pytest

from carpool import wire
from examples import sequences
from tests.watchdog_plugin import models
from tests.watchdog_plugin.cutting import cut
from watchdog_plugin import loading
from watchdog_plugin.batch_runner import BatchRunner, Concurrent, ModelLock
from watchdog_plugin.colocated import Colocated
from watchdog_plugin.function import LoadError
from watchdog_plugin.item import Item
from watchdog_plugin.settings import HandlerSettings

if TYPE_CHECKING:
    from pathlib import Path


def load(folder: Path, executor: str = "lazy") -> BatchRunner:
    """Load the function in ``folder``."""
    told = {"function_dir": str(folder), "carpool_executor": executor, "carpool_batch_max": "4"}
    function = loading.load(HandlerSettings.from_env(told)).function
    assert isinstance(function, Colocated)
    return BatchRunner(function, Concurrent() if function.concurrency > 1 else ModelLock())


def item(path: str, body: Any) -> Item:
    """Return a request to ``path``."""
    head = wire.build_head(f"POST {path}", ())
    return Item(memoryview(json.dumps(body).encode()), head, math.inf)


def ask(engine: BatchRunner, *items: Item) -> list[tuple[int, Any]]:
    """Return status and document of each response to a batch."""
    answers = engine.answer(list(items)).answers
    return [(answer.status, json.loads(bytes(answer.body))) for answer in answers]


def rows(number: int, width: int = 16) -> dict[str, Any]:
    """Return a request in the v1 form."""
    return {"instances": [[number / 10 + place for place in range(width)]]}


def words(length: int) -> dict[str, Any]:
    """Return a sequence whose response takes ``length`` steps."""
    tokens = [length, *range(sequences.LENGTH_MAX - 1)]
    shape = [1, len(tokens)]
    return {"inputs": [{"name": "tokens", "datatype": "INT64", "shape": shape, "data": tokens}]}


@pytest.fixture
def folder(tmp_path: Path, recurrent: Path) -> Path:
    """Folder of a function with a staged model, a step-by-step model and a model with code."""
    deep, speech, double = (tmp_path / "models" / name for name in ("deep", "speech", "double"))
    path = models.deep(deep / "model.onnx")
    cut(path, 3, deep / "stages")
    shutil.copytree(recurrent, speech)
    models.doubler(double / "model.onnx")
    (double / "beside.py").write_text("def negated(value):\n    return -value\n")
    (double / "handler.py").write_text(
        "from . import beside\n"
        "def postprocess(outputs):\n"
        "    return [beside.negated(int(value)) for value in outputs['y']]\n"
    )
    return tmp_path


@pytest.mark.parametrize("executor", ["lazy", "graph"])
def test_a_request_is_answered_by_the_model_it_names(folder: Path, executor: str) -> None:
    """The protocol's path or the first part of another path names it, also within a batch."""
    engine = load(folder, executor)
    asked = [
        item("/v2/models/speech/infer", words(3)),
        item("/deep", rows(1)),
        item("/double/any", {"instances": [[1, 2, 3]]}),
        item("/speech", words(2)),
        item("/v2/models/deep/versions/1", {}),
    ]
    together = ask(engine, *asked)
    alone = [ask(engine, each)[0] for each in asked]

    assert [200] * 5 == [status for status, _ in together]
    assert alone == together
    assert [1, 3] == together[0][1]["outputs"][0]["shape"]
    assert {"predictions": [[-2, -4, -6]]} == together[2][1]
    assert "deep" == together[4][1]["name"]


def test_the_repository_has_all_models(folder: Path) -> None:
    """Statistics are kept per model and do not count the warm-up."""
    engine = load(folder)
    assert [(200, {})] == ask(engine, item("/v2/repository/models/speech/load", {}))
    ((_, listed),) = ask(engine, item("/v2/repository/index", {}))
    assert ["deep", "double", "speech"] == [model["name"] for model in listed]
    assert [200, 200] == [s for s, _ in ask(engine, item("/deep", rows(1)), item("/deep", rows(2)))]
    ask(engine, item("/double", {"instances": [[1, 2, 3]]}))
    ((_, found),) = ask(engine, item("/v2/models/stats", {}))
    counts = {each["name"]: each["inference_count"] for each in found["model_stats"]}
    assert {"deep": 2, "double": 1, "speech": 0} == counts
    ((_, one),) = ask(engine, item("/v2/models/deep/stats", {}))
    assert 2 == one["model_stats"][0]["inference_stats"]["success"]["count"]


def test_unknown_model_fails_only_its_request(folder: Path) -> None:
    """The response names the models of the function."""
    found = ask(load(folder), item("/v2/models/dep/infer", rows(1)), item("/deep", rows(1)))

    assert [404, 200] == [status for status, _ in found]
    assert "'deep'" in found[0][1]["error"]
    assert "deep, double, speech" in found[0][1]["error"]


def test_models_run_concurrently(folder: Path) -> None:
    """The concurrency is the sum over the models, and each response is the same as alone."""
    engine = load(folder)
    asked = [item("/speech", words(1 + n)) for n in range(6)]
    asked += [item("/deep", rows(n)) for n in range(6)]
    expected = [ask(engine, each)[0] for each in asked]
    found: dict[int, tuple[int, Any]] = {}

    def call(number: int) -> None:
        found[number] = ask(engine, asked[number])[0]

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 3 * 6 == engine.concurrency
    for number, (status, document) in enumerate(expected):
        assert 200 == status
        key = "predictions" if "predictions" in document else "outputs"
        if key == "outputs":
            assert document[key][0]["data"] == found[number][1][key][0]["data"]
        else:
            assert pytest.approx(document[key][0], rel=1e-5) == found[number][1][key][0]


def test_model_file_beside_models_folder_is_refused(folder: Path) -> None:
    """A request without a model's name would be ambiguous."""
    models.doubler(folder / "model.onnx")
    with pytest.raises(LoadError, match="one or the other"):
        load(folder)


def test_model_path_selects_one_of_several_models(folder: Path) -> None:
    """`model_path` selects one of several models."""
    path = folder / "models" / "double" / "model.onnx"
    settings = HandlerSettings.from_env({"function_dir": str(folder), "model_path": str(path)})

    assert not isinstance(loading.load(settings).function, Colocated)


def test_uncalled_code_beside_several_models_is_refused(folder: Path) -> None:
    """The message says where the code belongs."""
    (folder / "handler.py").write_text("def preprocess(item):\n    return item.json()\n")
    with pytest.raises(LoadError, match="in a model's folder"):
        load(folder)
    (folder / "handler.py").unlink()
    (folder / "models" / "deep" / "handler.py").write_text("def handle_batch(items):\n    pass\n")
    with pytest.raises(LoadError, match="expected preprocess"):
        load(folder)
