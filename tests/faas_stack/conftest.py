"""Fixtures that provide each backend as a stage for the provider tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faas_stack.rig import ProcessStage

if TYPE_CHECKING:
    from tests.faas_stack.rig import Stage


@pytest.fixture(
    params=[
        "process",
        pytest.param("process-alone", marks=pytest.mark.slow),
        pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.slow]),
    ]
)
def backend_stage(request: pytest.FixtureRequest) -> Stage:
    """A stage of each backend; for processes, also one that does not accept bundled calls."""
    if request.param.startswith("process"):
        return ProcessStage(alone=request.param == "process-alone")
    stage: Stage = request.getfixturevalue("docker_stage")
    return stage
