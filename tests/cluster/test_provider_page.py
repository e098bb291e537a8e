"""The command of docs/provider.md for a cluster runs as it is printed, with a free port."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.docs.provider_line import started
from tests.docs.snippets import take_one

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.slow
_, COMMAND = take_one("docs/provider.md", "kubernetes").splitlines()


def test_provider_lists_functions_of_cluster(api_server: Cluster, tmp_path: Path) -> None:
    """The provider reads the kubeconfig in the home folder."""
    (tmp_path / ".kube").mkdir()
    shutil.copy(api_server.kubeconfig, tmp_path / ".kube" / "config")
    with started(COMMAND, tmp_path) as functions:
        assert [] == functions()
