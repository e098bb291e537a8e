"""No circle of imports between modules, those for annotations alone included."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

PACKAGES = (
    "benchmarks",
    "carpool",
    "faas_stack",
    "scaler",
    "sidecar",
    "simulator",
    "watchdog_plugin",
)


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Each module can be read after those that it imports, and with no other."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail("a circle of imports: " + " <- ".join(error.args[1]))
