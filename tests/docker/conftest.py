"""Images of functions and stacks that several test files use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.docker.compose import PROFILES, Compose
from tests.docker.functions import ECHO, build_echo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.docker.engine import Engine


@pytest.fixture(scope="session")
def echo(docker_images: None, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: ARG001
    """Build the image of a function in Python."""
    build_echo(tmp_path_factory.mktemp("echo"))
    return ECHO


@pytest.fixture
def compose(docker_images: None, docker_engine: Engine) -> Iterator[Compose]:  # noqa: ARG001
    """Yield the stack; remove it at the end with its functions, network and volumes."""
    stack = Compose(docker_engine.socket)
    stack.env["DOCKER_GID"] = str(Path(docker_engine.socket).stat().st_gid)
    try:
        yield stack
    finally:
        stack(*PROFILES, "stop", "scaler", "provider")
        stack("run", "--rm", "provider", "--clear")
        stack(*PROFILES, "down", "--volumes", "--timeout", "5")
