"""Images of functions that several files of tests use."""

from __future__ import annotations

import pytest

from tests.docker.functions import ECHO, build_echo


@pytest.fixture(scope="session")
def echo(docker_images: None, tmp_path_factory: pytest.TempPathFactory) -> str:  # noqa: ARG001
    """The image of a function in Python."""
    build_echo(tmp_path_factory.mktemp("echo"))
    return ECHO
