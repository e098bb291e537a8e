"""The example functions, with newly built models."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples import models
from tests.examples.handlers import serving
from tests.made_once import made_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.examples.handlers import Handler

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
IGNORED = shutil.ignore_patterns("__pycache__", "*.onnx", "*.json")


@pytest.fixture(scope="session")
def example_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that makes an example's folder once, complete with its model."""

    def make(name: str) -> Path:
        def fill(folder: Path) -> None:
            shutil.copytree(EXAMPLES / name, folder / name, ignore=IGNORED)
            if name in models.BUILDERS:
                models.build(name, folder)

        return made_once(tmp_path_factory, f"example-{name}", fill) / name

    return make


@pytest.fixture(scope="module")
def example(
    request: pytest.FixtureRequest, example_folder: Callable[[str], Path]
) -> Iterator[Handler]:
    """Yield the running handler of the example that the test's parameter names."""
    with serving(example_folder(request.param)) as handler:
        yield handler
