"""Tests of functions of the Flask template, from the stack file to the response."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import requests

from faas_stack.stack import stack_file
from tests.faas_stack.test_up import ROOT, carpool
from tests.waiting import HANG_S

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.xdist_group("flask template")  # one worker starts the stack

STACK = """\
provider: {name: openfaas}
functions:
  names: &function
    lang: python3-flask-batch
    handler: ./names
    image: names:latest
    labels:
      com.carpool.slo: 60s
      com.carpool.batch.policy: fixed
      com.carpool.batch.wait: 2s
      com.carpool.batch.max: "16"
  others:
    <<: *function
    image: others:latest
"""
SKELETON = ROOT / "templates" / "python3-flask-batch" / "function"


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """URLs of two functions made by the template on one machine."""
    folder: Path = tmp_path_factory.mktemp("stack")
    shutil.copytree(SKELETON, folder / "names")
    (folder / "stack.yaml").write_text(STACK)
    with carpool(folder, "up", "--port", "0", "--json", "--no-watchdog") as up:
        yield [function["url"] for function in up.result()["functions"]]


def ask(url: str, *instances: object) -> requests.Response:
    """Send one request."""
    headers = {"x-carpool-explain": "1"}
    return requests.post(url, json={"instances": instances}, headers=headers, timeout=HANG_S)


def together(url: str, rows: list[Any]) -> list[requests.Response]:
    """Return the responses to requests that fill a batch."""
    with ThreadPoolExecutor(len(rows)) as callers:
        return list(callers.map(lambda row: ask(url, row), rows))


def test_requests_of_each_function_are_batched(urls: list[str]) -> None:
    """Two functions batch their requests, with servers on different ports."""
    for url in urls:
        answers = together(url, [f"no {n}" for n in range(16)])
        found = [answer.json()["predictions"] for answer in answers]
        assert [[f"Hello, no {n}!"] for n in range(16)] == found
        assert {"16"} == {answer.headers["x-carpool-batch"] for answer in answers}


def test_one_bad_request_fails_alone(urls: list[str]) -> None:
    """An invalid request fails alone, and the other fifteen in its batch succeed."""
    answers = together(urls[0], [*range(1), *(f"{n}" for n in range(15))])
    assert [400, *[200] * 15] == [answer.status_code for answer in answers]
    assert {"error": "TypeError('expected a name as text')"} == json.loads(answers[0].text)


def test_stack_file_environment_overrides_template(tmp_path: Path) -> None:
    """The stack file's environment overrides the template's defaults."""
    shutil.copytree(SKELETON, tmp_path / "names")
    text = STACK.replace("handler:", "environment: {sidecar_handler_port: 6000}\n    handler:", 1)
    (tmp_path / "stack.yaml").write_text(text)
    (function, _) = stack_file.load(tmp_path / "stack.yaml").functions
    assert {"carpool_wire": "v1", "sidecar_handler_port": "6000"} == function.environment


def test_stack_file_annotations_override_template(tmp_path: Path) -> None:
    """The stack file's annotations override the template's environment."""
    shutil.copytree(SKELETON, tmp_path / "names")
    text = STACK.replace("handler:", "annotations: {com.carpool.wire: oip}\n    handler:", 1)
    (tmp_path / "stack.yaml").write_text(text)
    (function, _) = stack_file.load(tmp_path / "stack.yaml").functions
    assert {"sidecar_handler_port": "0"} == function.environment
