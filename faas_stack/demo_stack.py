"""What the demonstration runs on: the example models, and ``carpool up`` as a program of its own.

The stack runs outside this process, so that whoever sends the load does not share an event loop
with what is measured. Everything written goes to a folder that is removed at the end.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carpool.errors import CarpoolError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ROOT", "DemoFailed", "Running", "build_models", "up"]

ROOT = Path(__file__).resolve().parents[1]

_BUILD_S = 60
_DRAIN_S = 15

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
      com.carpool.cpu: "1"
"""


class DemoFailed(CarpoolError):
    """The demonstration cannot go on."""


@dataclass(frozen=True, slots=True)
class Running:
    """The stack, ready.

    Attributes:
        address: ``HOST:PORT`` of the provider.
    """

    address: str


def build_models() -> None:
    """Build the example models that are not there yet.

    Raises:
        DemoFailed: no examples beside this package, or a model cannot be built.
    """
    if not (ROOT / "examples" / "models.py").is_file():
        msg = "the demonstration runs in a checkout of the repository: its examples are not here"
        raise DemoFailed(msg)
    names = sorted({folder for folder, *_ in _FUNCTIONS.values()})
    command = [sys.executable, "-m", "examples.models", *names]
    done = subprocess.run(  # noqa: S603 - our own module
        command, cwd=ROOT, capture_output=True, text=True, timeout=_BUILD_S, check=False
    )
    if done.returncode:
        msg = f"the example models cannot be built:\n{done.stderr[-2000:]}"
        raise DemoFailed(msg)


@contextmanager
def up() -> Iterator[Running]:
    """Run the stack for the length of the ``with`` block.

    Raises:
        DemoFailed: it does not become ready; carries what it said.
    """
    with tempfile.TemporaryDirectory(prefix="carpool-demo-") as folder:
        stack = Path(folder) / "stack.yaml"
        stack.write_text(_stack_text(), encoding="utf-8")
        log_path = Path(folder) / "up.log"
        command = [sys.executable, "-m", "carpool", "up", "-f", str(stack), "--port", "0", "--json"]
        with (
            log_path.open("w", encoding="utf-8") as log,
            subprocess.Popen(  # noqa: S603 - our own command
                command,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for us, who then stop it in order
            ) as process,
        ):
            try:
                yield Running(_address(_first_line(process, log_path)))
            finally:
                _stop(process)


def _stack_text() -> str:
    parts = ["version: 1.0\nprovider: {name: openfaas}\nfunctions:\n"]
    for name, (folder, slo, policy, batch_max) in _FUNCTIONS.items():
        handler = json.dumps(str(ROOT / "examples" / folder))  # a JSON string is a YAML string
        parts.append(
            _FUNCTION.format(
                name=name, handler=handler, slo=slo, policy=policy, batch_max=batch_max
            )
        )
    return "".join(parts)


def _first_line(process: subprocess.Popen[str], log_path: Path) -> str:
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        log = log_path.read_text(encoding="utf-8", errors="replace")
        msg = f"the stack did not start; its last words:\n{log[-2000:]}"
        raise DemoFailed(msg)
    return line


def _address(line: str) -> str:
    said: dict[str, Any] = json.loads(line)
    return str(said["url"]).removeprefix("http://").rstrip("/")


def _stop(process: subprocess.Popen[str]) -> None:
    """Drain, as the first Ctrl-C does; then insist."""
    for number in (signal.SIGINT, signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(_DRAIN_S)
            except subprocess.TimeoutExpired:
                continue
