"""The command of docs/docker.md for an engine runs as it is printed, with a free port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docker.command import Command
from tests.docs.provider_line import started
from tests.docs.snippets import take_one

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.docker, pytest.mark.slow]
_, COMMAND = take_one("docs/docker.md", "docker\\]'$").splitlines()


@pytest.mark.usefixtures("docker_images")
def test_provider_keeps_state_in_home_folder(tmp_path: Path) -> None:
    """The provider answers, and its state is where the page says."""
    other = Command(tmp_path)  # for the name of its stack, and to remove the network
    with started(f"{COMMAND} --stack {other.stack}", tmp_path) as functions:
        assert [] == functions()
    assert (tmp_path / ".carpool").is_dir()
    other.clear()
