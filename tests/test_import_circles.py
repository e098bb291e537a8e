"""Test rules of imports that also hold for those that are only for annotations."""

from __future__ import annotations

from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from itertools import takewhile

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
POLICIES = "scaler.policies"


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Modules that each module imports, including those only for annotations."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def test_no_modules_import_each_other_in_a_circle(imports: dict[str, set[str]]) -> None:
    """The import graph has no cycles."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail("a circle of imports: " + " <- ".join(error.args[1]))


def test_no_folders_import_each_other_in_a_circle(imports: dict[str, set[str]]) -> None:
    """Folders and modules side by side do not import each other in a circle, at any depth."""
    graphs: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, imported in imports.items():
        for other in imported:
            pairs = zip(name.split("."), other.split("."), strict=False)
            shared = [part for part, its in takewhile(lambda pair: pair[0] == pair[1], pairs)]
            here, there = name.split(".")[len(shared) :], other.split(".")[len(shared) :]
            if here and there:
                graphs[".".join(shared)][here[0]].add(there[0])
    for folder, graph in graphs.items():
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            pytest.fail(f"a circle of imports in {folder}: " + " <- ".join(error.args[1]))
    assert {"", "faas_stack", "scaler.control", "sidecar.runtime"} <= set(graphs)


def test_policies_import_no_other_module_of_the_scaler(imports: dict[str, set[str]]) -> None:
    """A scaling policy uses no other part of Carpool than ``carpool``, as those of users."""
    policies = {name for name in imports if name.startswith(POLICIES)}
    others = {
        (name, imported)
        for name in policies
        for imported in imports[name]
        if not imported.startswith(("carpool", POLICIES))
    }
    assert set() == others
    assert {f"{POLICIES}.{name}" for name in ("fixed", "infless.policy")} <= policies
