"""Run the pages' commands that register variants, and serve them as infaas.md shows."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from carpool.variants.variant_file import read_variants
from tests.docs.snippets import take_one
from tests.faas_stack.test_up import carpool
from tests.waiting import HANG_S, wait_until
from tests.watchdog_plugin.registration.models import INPUTS, classifier, validation

PAGE = "docs/policies/infaas.md"
COMMANDS = {
    "classify": take_one("docs/commands.md", "^carpool register"),
    "objects": take_one(PAGE, "^carpool register small.onnx"),
}
*REGISTER, UP = take_one(PAGE, "^cd classify").splitlines()
CURL = take_one(PAGE, "^curl -i")
STACK = """\
provider: {name: openfaas}
functions:
  classify:
    lang: python3-onnx-batch
    handler: ./classify
    image: classify:latest
    labels:
      com.carpool.slo: 20s
      com.carpool.scale.policy: infaas
"""
TENSOR = {"name": "x", "datatype": "FP32", "shape": [1, INPUTS], "data": [1.0] * INPUTS}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("live")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a home with models, validation data, and a stack of one function without a model."""
    for model, data in (("small", "objects"), ("large", "objects"), ("model", "validation")):
        answer = classifier(tmp_path / f"{model}.onnx")
        validation(tmp_path / f"{data}.npz", answer)
    (tmp_path / "classify").mkdir()
    (tmp_path / "stack.yaml").write_text(STACK)
    return tmp_path


def run(text: str, folder: Path) -> str:
    """Run commands, which must end with 0, with ``folder`` as home, and return the output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", text],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "PATH": path},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert 0 == done.returncode, f"{text}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("app", COMMANDS)
def test_variants_are_registered(app: str, folder: Path) -> None:
    """The command's last line names the list, which has the variants."""
    last = run(COMMANDS[app], folder).splitlines()[-1]
    variants = read_variants(folder / "variants" / app / "variants.json")
    assert f"{len(variants)} variants of {app} in variants/{app}/variants.json" == last


def test_a_request_chooses_among_registered_variants(folder: Path) -> None:
    """The function has no model but its variants, and the response names the one that answered."""
    run("\n".join(REGISTER), folder)
    *back, command = UP.partition("#")[0].split("&&")
    assert ["cd .."] == [part.strip() for part in back]
    options = ("--port", "0", "--scaler-port", "0", "--json", "--no-watchdog")
    with carpool(folder, *shlex.split(command)[1:], *options) as up:
        address = up.result()["url"].removeprefix("http://")
        body = json.dumps({"inputs": [TENSOR]})
        text = CURL.replace("127.0.0.1:8080", address).replace("'...'", shlex.quote(body))

        def is_answered() -> bool:
            answer = run(text, folder).lower()
            return answer.startswith("http/1.1 200") and "\nx-carpool-variant: " in answer

        wait_until(is_answered, what="an instance")
