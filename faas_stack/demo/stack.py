"""The environment of the demonstration: the example models, and ``carpool up`` as a subprocess.

All files are written to a folder that is removed at the end.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from carpool.errors import CarpoolError
from faas_stack.stack.stack_process import ROOT, stack_process

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ROOT", "DemoFailed", "models", "up"]

_BUILD_S = 60
_PACKAGES = ("onnxruntime", "onnx", "magika")  # build the models
_SHIPPED = Path(__file__).resolve().parents[1] / "_examples"  # exists only in a wheel

# name -> (folder under examples/, SLO, policy, largest batch)
_FUNCTIONS = {
    "filetype": ("filetype", "200ms", "deadline", 32),
    "filetype-none": ("filetype", "200ms", "none", 32),
    "resnet50": ("resnet50", "2s", "deadline", 8),
    "wide": ("wide", "200ms", "deadline", 32),
    "wide-none": ("wide", "200ms", "none", 32),
}

_FUNCTION = """\
  {name}:
    lang: python3-onnx-batch
    handler: {handler}
    image: demo/{name}
    labels:
      com.carpool.slo: {slo}
      com.carpool.batch.policy: {policy}
      com.carpool.batch.max: "{batch_max}"
"""


class DemoFailed(CarpoolError):
    """Raised when the demonstration cannot continue."""


@contextmanager
def models() -> Iterator[Path]:
    """Provide the examples with their models, building models that are missing.

    Yields:
        Their folder: the checkout's own, or for a wheel a copy that is removed at the end.

    Raises:
        DemoFailed: If a model cannot be built.
    """
    with tempfile.TemporaryDirectory(prefix="carpool-demo-") as folder:
        root = ROOT
        if _SHIPPED.is_dir():
            root = Path(folder)
            shutil.copytree(_SHIPPED, root / "examples")
        _build(root)
        yield root / "examples"


def _build(root: Path) -> None:
    names = sorted({folder for folder, *_ in _FUNCTIONS.values()})
    command = [sys.executable, "-m", "examples.models", *names]
    done = subprocess.run(  # noqa: S603 - our own module
        command, cwd=root, capture_output=True, text=True, timeout=_BUILD_S, check=False
    )
    if not done.returncode:
        return
    msg = f"the example models cannot be built:\n{done.stderr[-2000:]}"
    if missing := [name for name in _PACKAGES if importlib.util.find_spec(name) is None]:
        fix = "run pip install 'carpool[stack,scaler,onnx,examples]'"
        msg = f"the Python package {missing[0]!r} is not installed; {fix}"
    raise DemoFailed(msg)


@contextmanager
def up(examples: Path) -> Iterator[str]:
    """Run the stack for the duration of the ``with`` block.

    Args:
        examples: The folder with the functions.

    Yields:
        ``HOST:PORT`` of the provider, once the stack is ready.

    Raises:
        StackFailed: If it does not become ready; contains its output.
    """
    with tempfile.TemporaryDirectory(prefix="carpool-demo-") as folder:
        stack = Path(folder) / "stack.yaml"
        stack.write_text(_stack_text(examples), encoding="utf-8")
        with stack_process(stack) as running:
            yield str(running["url"]).removeprefix("http://").rstrip("/")


def _stack_text(examples: Path) -> str:
    parts = ["version: 1.0\nprovider: {name: openfaas}\nfunctions:\n"]
    for name, (folder, slo, policy, batch_max) in _FUNCTIONS.items():
        handler = json.dumps(str(examples / folder))  # a JSON string is a YAML string
        parts.append(
            _FUNCTION.format(
                name=name, handler=handler, slo=slo, policy=policy, batch_max=batch_max
            )
        )
    return "".join(parts)
