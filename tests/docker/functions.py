"""Functions that tests build from the shipped templates, as ``faas-cli build`` would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faas_stack.stack import stack_file
from faas_stack.stack.assemble import assemble
from tests.docker.images import build_image

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ECHO", "build_echo", "build_function"]

ECHO = "carpool-test-echo:latest"
HANDLER = """\
import os
import time

def handle_batch(items):
    bodies = [item.bytes() for item in items]
    time.sleep(0.01 + 0.004 * len(items))
    while b"slow" in bodies and not os.path.exists("/tmp/go-on"):
        time.sleep(0.01)
    return [
        {"size": len(body), "end": body[-8:].decode(), "call": item.headers.get("x-call-id")}
        for item, body in zip(items, bodies)
    ]
"""
HANDLER_TEST = "import unittest\n"


def build_function(folder: Path, lang: str, image: str) -> str:
    """Build ``folder/function`` with a template, as ``faas-cli build`` would; return the output."""
    (folder / "stack.yaml").write_text(
        "provider: {name: openfaas}\nfunctions:\n"
        f"  fn: {{lang: {lang}, handler: ./function, image: {image}}}\n"
    )
    stack = stack_file.load(folder / "stack.yaml")
    context = assemble(stack, stack.functions[0])
    return build_image(image, context.folder)


def build_echo(folder: Path) -> None:
    """Build a function in Python that returns the length and the end of each body.

    A batch takes 10 ms, and 4 ms for each item; one with the body ``slow`` waits for the file
    ``/tmp/go-on``.
    """
    (folder / "function").mkdir()
    (folder / "function" / "handler.py").write_text(HANDLER)
    (folder / "function" / "handler_test.py").write_text(HANDLER_TEST)
    build_function(folder, "python3-batch", ECHO)
