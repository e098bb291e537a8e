"""The handlers in docs/handler.md answer as the page says."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import onnxruntime
import pytest

from carpool.wire import build_head
from tests.docs.snippets import take, take_one
from tests.watchdog_plugin.test_batch_function import answered
from watchdog_plugin import ItemError, handler_contract
from watchdog_plugin.handler_contract import HandlerModule
from watchdog_plugin.item import Item
from watchdog_plugin.streaming import Streaming

# scikit-learn is imported where it is used: collecting tests need not wait for it.
if TYPE_CHECKING:
    from collections.abc import Iterator

    from sklearn.linear_model import LogisticRegression

    from tests.docs.snippets import Block

PAGE = "docs/handler.md"
SKLEARN, FLASK = (block.text for block in take(PAGE, "^import joblib"))
EXAMPLE = take_one(PAGE, "^example = ")
ERRORS = take_one(PAGE, "^from watchdog_plugin import ItemError")
STREAM, STREAMED = take_one(PAGE, "^def stream"), take_one(PAGE, r"^\$ curl -N")
FLASK_ANSWER = take_one(PAGE, r"^\$ curl \$URL --json")
TEXT_MODEL = take_one(PAGE, r"^skl2onnx\.to_onnx")
STEP = take_one("docs/policies/lazybatching.md", "^steps_max")
IMAGE = take_one(PAGE, "^import io$")
DECLARED = [*take(PAGE, "^batch_axis"), *take(PAGE, "^ragged")]


def defined(text: str, **names: Any) -> dict[str, Any]:
    """Return what a handler with this text defines, in addition to ``names``."""
    names["__name__"] = __name__
    exec(compile(text, "handler.py", "exec"), names)
    return names


@pytest.fixture
def classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogisticRegression:
    """Train a model of three flowers, and store it where the handlers load it."""
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression

    monkeypatch.chdir(tmp_path)
    x, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=1000).fit(x, y)
    Path("function").mkdir()
    for name in ("model.joblib", "function/model.joblib"):
        joblib.dump(model, name)
    return model


def test_batch_handler_labels_each_item(classifier: LogisticRegression) -> None:
    """The handler returns the label for the features of each item."""
    names = defined(SKLEARN)
    names["load"]()
    bodies = [
        json.dumps({"features": row}).encode() for row in ([5.1, 3.5, 1.4, 0.2], [6, 3, 5, 2])
    ]
    labels = classifier.predict([[5.1, 3.5, 1.4, 0.2], [6, 3, 5, 2]])
    answers = [(200, b'{"label":%d}' % label) for label in labels]
    assert answers == answered(names["handle_batch"], *bodies)


def test_handler_can_read_example_body() -> None:
    """The example is JSON that the handler above can read."""
    assert [1, 2, 3] == json.loads(defined(EXAMPLE)["example"])["features"]


def test_only_item_with_error_is_refused() -> None:
    """Only the item with an empty body is refused."""
    answers = answered(defined(ERRORS)["handle_batch"], b"a", b"")
    assert [(200, b"A"), 422] == [answers[0], answers[1][0]]


class _Model:
    """A model that continues the prompt of the page as the page shows."""

    def generate(self, prompt: str) -> Iterator[str]:
        yield from {"the fox": ["saw", "the"]}[prompt]


def test_streamed_events_match_page() -> None:
    """The events are the ones that the page shows."""
    module = HandlerModule(Path("handler.py"), stream=defined(STREAM, model=_Model())["stream"])
    item = Item(memoryview(b'{"prompt": "the fox"}'), build_head("POST /", []), math.inf)
    answer = Streaming(module, everything=True, at_once_max=1).answer(item)
    pieces = b"".join([answer.body, *(answer.pieces or ())])
    assert STREAMED.partition("\n")[2].strip() == pieces.decode().strip()


@pytest.mark.usefixtures("classifier")
def test_flask_app_responses_match_page() -> None:
    """The app gives the answer that is shown, and 400 for a body without instances."""
    pytest.importorskip("flask", reason="the extra scaler has it")
    client = defined(FLASK)["app"].test_client()
    _, _, asked = FLASK_ANSWER.partition("--json '")
    body, _, shown = asked.partition("'\n")
    assert json.loads(shown) == client.post("/", json=json.loads(body)).get_json()
    assert 400 == client.post("/", json={}).status_code


def test_exported_text_model_gives_same_labels() -> None:
    """Export a pipeline by the expression of the page, and compare its answers."""
    import skl2onnx
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    vectorizer = TfidfVectorizer()
    pipeline = make_pipeline(vectorizer, LogisticRegression())
    texts, labels = ["red car", "blue car", "red house", "blue house"], [1, 2, 1, 2]
    pipeline.fit(texts, labels)
    used = {"skl2onnx": skl2onnx, "StringTensorType": StringTensorType}
    names = defined(f"model = ({TEXT_MODEL})", pipeline=pipeline, vectorizer=vectorizer, **used)
    session = onnxruntime.InferenceSession(names["model"].SerializeToString())
    assert labels == session.run(None, {"text": np.array(texts)[:, None]})[0].tolist()


def test_sequences_of_different_ages_take_a_step(tmp_path: Path) -> None:
    """The declarations are read, and two sequences of different ages take a step."""
    (tmp_path / "handler.py").write_text(STEP)
    module = handler_contract.read(tmp_path, tmp_path.name)
    assert module.decode_step
    assert 40 == module.steps_max
    names = defined(STEP, cell=lambda token, hidden: hidden + token[:, None], END=1)
    names["vocabulary"] = np.array([[1.0, 0.0], [0.0, 1.0]])
    state = {"token": np.array([0, 1]), "hidden": np.array([[2.0, 1.0], [0.0, 1.0]])}
    step = names["decode_step"](state)
    assert {"next.hidden", "next.token", "done", "word"} == step.keys()
    assert [False, True] == step["done"].tolist()


@pytest.mark.parametrize("block", DECLARED, ids=lambda block: str(block.first))
def test_handler_with_only_declared_axes_is_accepted(block: Block, tmp_path: Path) -> None:
    """A handler with these declarations alone is accepted, and each of them is read."""
    (tmp_path / "handler.py").write_text(block.text)
    module = handler_contract.read(tmp_path, tmp_path.name)
    found = {**module.lengths, "batch_axis": module.batch_axis}
    assert [] == [
        name
        for name, value in defined(block.text).items()
        if not name.startswith("__") and found.get(name) != value
    ]


def test_images_are_decoded_and_other_bodies_refused() -> None:
    """An image becomes the input of one item; other bodies are answered 415 without the model."""
    image = pytest.importorskip("PIL.Image")
    handler, png = defined(IMAGE), io.BytesIO()
    image.new("RGBA", (30, 20), (255, 0, 0)).save(png, "png")
    head = build_head("POST /", [])
    pixels = handler["preprocess"](Item(memoryview(png.getvalue()), head, math.inf))
    assert ((3, 224, 224), np.float32) == (pixels.shape, pixels.dtype)
    assert [1.0, 0.0, 0.0] == pixels[:, 100, 100].tolist()
    with pytest.raises(ItemError, match="not an image") as refused:
        handler["preprocess"](Item(memoryview(b"text"), head, math.inf))
    assert 415 == refused.value.status
    assert {"label": 2} == handler["postprocess"]({"logits": np.array([0.1, 0.2, 0.7])})
