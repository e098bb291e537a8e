"""Policies are found by name, from three places, and made with checked parameters."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from carpool import plugins
from carpool.errors import ConfigError
from sidecar.policies.fixed import FixedWindow
from tests.carpool.plugin_samples import Formless, Patient, Typeless

if TYPE_CHECKING:
    from pathlib import Path

HERE = "tests.carpool.plugin_samples"


def _install(folder: Path, distribution: str, entries: str, group: str = "batch_policies") -> None:
    """What pip leaves behind for a package with entry points."""
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[carpool.{group}]\n{entries}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in which packages can be installed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", plugins.BUILT_IN["batch"])
def test_every_built_in_name_leads_to_a_policy(name: str) -> None:
    """Each built-in can be imported and made with its defaults."""
    assert plugins.build(plugins.resolve("batch", name), {}) is not None


def test_a_dotted_path_leads_to_a_local_class() -> None:
    """A policy in a local file needs no packaging."""
    assert Patient is plugins.resolve("batch", f"{HERE}:Patient")


def test_an_installed_package_brings_names(site: Path) -> None:
    """An entry point adds a name, for its own kind of policy alone."""
    _install(site, "patience", f"patient = {HERE}:Patient")
    _install(site, "planner", f"grand = {HERE}:Patient", group="scale_policies")
    assert Patient is plugins.resolve("batch", "patient")
    assert Patient is plugins.resolve("scale", "grand")
    assert [*plugins.BUILT_IN["batch"], "patient"] == [f.name for f in plugins.listed("batch")]
    assert "patience" == plugins.listed("batch")[-1].origin


def test_an_unknown_name_lists_the_known_and_the_nearest() -> None:
    """A misspelt policy is an error with the fix."""
    with pytest.raises(ConfigError, match="did you mean 'deadline'") as caught:
        plugins.resolve("batch", "dedline")
    (problem,) = caught.value.problems
    assert ("batch.policy", "dedline") == (problem.name, problem.value)
    names = ", ".join(sorted(plugins.BUILT_IN["batch"]))
    assert f"one of {names}, pkg.module:Class" == problem.expected


@pytest.mark.parametrize("name", ["fixed", "shared"])
def test_two_owners_of_a_name_are_both_named(site: Path, name: str) -> None:
    """No package takes over a name silently, neither a built-in's nor another package's."""
    _install(site, "left", f"{name} = {HERE}:Patient")
    _install(site, "right", f"{name} = {HERE}:Formless")
    with pytest.raises(ConfigError, match=r"left .*Patient.* and right .*Formless") as caught:
        plugins.resolve("batch", name)
    assert ("built-in" in str(caught.value)) == (name == "fixed")


@pytest.mark.parametrize(
    ("target", "detail"),
    [
        ("no_such_module:Policy", "No module named 'no_such_module'"),
        (f"{HERE}:Impatient", "no attribute 'Impatient'"),
        (f"{HERE}:not_a_class", "not_a_class is a function, not a class"),
        (f"{HERE}:", "no attribute ''"),
        (":Policy", "Empty module name"),
        ("..:Policy", "pkg.module:Class"),
    ],
)
def test_a_path_that_leads_nowhere_says_why(target: str, detail: str) -> None:
    """A dotted path that cannot be imported is an error with Python's reason."""
    with pytest.raises(ConfigError) as caught:
        plugins.resolve("batch", target)
    assert detail in str(caught.value)


def test_finding_one_policy_does_not_import_the_others() -> None:
    """Choosing a policy imports its own file and no other policy's."""
    code = (
        "import sys; from carpool import plugins; plugins.resolve('batch', 'none');"
        "sys.exit('sidecar.policies.fixed' in sys.modules)"
    )
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode


def test_parameters_reach_the_policy() -> None:
    """Given parameters and the defaults of the others fill Params."""
    policy = plugins.build(Patient, {"goal": 1, "mode": "hard", "cap": None})
    assert Patient.Params(goal=1, mode="hard") == policy.params


@pytest.mark.parametrize(
    ("params", "names", "detail"),
    [
        ({}, ["goal"], "it has no default"),
        ({"goal": "1"}, ["goal"], "float"),
        ({"goal": True}, ["goal"], "float"),
        ({"goal": 1, "size": 2.0}, ["size"], "int"),
        ({"goal": 1, "size": True}, ["size"], "int"),
        ({"goal": 1, "mode": "Soft"}, ["mode"], "Literal['soft', 'hard']"),
        ({"goal": 1, "cap": "4"}, ["cap"], "int | None"),
        ({"goal": 1, "strict": 1}, ["strict"], "bool"),
        ({"goal": 1, "siez": 2}, ["siez"], "did you mean 'size'?"),
        ({"size": "2", "x": 1}, ["size", "x", "goal"], "int"),
        ({"goal": 7}, ["Patient"], "goal 7 is not a share"),
    ],
)
def test_wrong_parameters_are_reported_together(
    params: dict[str, Any], names: list[str], detail: str
) -> None:
    """Unknown, missing, ill-typed and refused parameters are errors before any request comes."""
    with pytest.raises(ConfigError) as caught:
        plugins.build(Patient, params)
    assert names == [problem.name for problem in caught.value.problems]
    assert detail in str(caught.value)


def test_a_policys_own_report_comes_through() -> None:
    """A policy that reports problems in our form is quoted as it is."""
    with pytest.raises(ConfigError, match=r"^size = '-1'"):
        plugins.build(FixedWindow, {"size": -1})


def test_a_policy_without_parameters_says_so() -> None:
    """A parameter for a policy that has none is refused as such."""
    with pytest.raises(ConfigError, match="the policy has no parameters"):
        plugins.build(plugins.resolve("batch", "none"), {"size": 3})


def test_a_class_without_params_is_not_a_policy() -> None:
    """The contract's nested Params is missed by name."""
    with pytest.raises(ConfigError, match="nested dataclass Params"):
        plugins.build(Formless, {})


def test_a_type_that_only_a_checker_sees_is_told() -> None:
    """Parameters cannot be checked against a type that is not imported; the fix is named."""
    with pytest.raises(ConfigError, match=r"'Mapping' is not defined: import it outside"):
        plugins.build(Typeless, {"shares": {}})
