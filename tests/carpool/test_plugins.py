"""Policies are found by name in three places, and created with checked parameters."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from carpool import plugins
from carpool.errors import ConfigError
from sidecar.policies.fixed import FixedWindow
from tests.carpool.plugin_samples import Formless, Leaving, Mistyped, Patient, Typeless
from tests.installed import install

if TYPE_CHECKING:
    from pathlib import Path

HERE = "tests.carpool.plugin_samples"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in which packages can be installed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", plugins.BUILT_IN["batch"])
def test_every_built_in_name_leads_to_a_policy(name: str) -> None:
    """Each built-in can be imported and created with its defaults."""
    assert plugins.build(plugins.resolve("batch", name), {}) is not None


def test_dotted_path_finds_a_local_class() -> None:
    """A policy in a local file needs no packaging."""
    assert Patient is plugins.resolve("batch", f"{HERE}:Patient")


@pytest.mark.parametrize(
    ("kind", "group"),
    [
        ("batch", "carpool.batch_policies"),
        ("scale", "carpool.scale_policies"),
        ("prewarm", "carpool.prewarm_policies"),
        ("backend", "carpool.provider_backends"),
    ],
)
def test_entry_point_adds_a_name_for_its_kind(site: Path, kind: plugins.Kind, group: str) -> None:
    """An entry point adds a name, but only for its own kind of extension."""
    install(site, "patience", group, f"patient = {HERE}:Patient")
    assert Patient is plugins.resolve(kind, "patient")
    assert [*plugins.BUILT_IN[kind], "patient"] == [found.name for found in plugins.listed(kind)]
    assert "patience" == plugins.listed(kind)[-1].origin
    for other in plugins.GROUPS.keys() - {kind}:
        assert "patient" not in [found.name for found in plugins.listed(other)]


def test_an_unknown_name_lists_the_known_and_the_nearest() -> None:
    """The error for a misspelt policy lists the known names and the nearest one."""
    with pytest.raises(ConfigError, match="did you mean 'deadline'") as caught:
        plugins.resolve("batch", "dedline")
    (problem,) = caught.value.problems
    assert ("batch.policy", "dedline") == (problem.name, problem.value)
    names = ", ".join(sorted(plugins.BUILT_IN["batch"]))
    assert f"one of {names}, pkg.module:Class" == problem.expected


def test_conflicting_owners_of_a_name_are_both_reported(site: Path) -> None:
    """A package cannot silently take the name of another package's policy."""
    install(site, "left", "carpool.batch_policies", f"shared = {HERE}:Patient")
    install(site, "right", "carpool.batch_policies", f"shared = {HERE}:Formless")
    with pytest.raises(ConfigError, match=r"left .*Patient.* and right .*Formless"):
        plugins.resolve("batch", "shared")


def test_built_in_name_stays_the_built_in_policy(site: Path) -> None:
    """A package cannot take the name of a built-in; the list of policies shows both."""
    install(site, "left", "carpool.batch_policies", f"fixed = {HERE}:Patient")
    assert plugins.BUILT_IN["batch"]["fixed"].endswith(plugins.resolve("batch", "fixed").__name__)
    both = [policy.origin for policy in plugins.listed("batch") if policy.name == "fixed"]
    assert ["built-in", "left"] == both


@pytest.mark.parametrize(
    ("target", "detail"),
    [
        ("no_such_module:Policy", "No module named 'no_such_module'"),
        (f"{HERE}:Impatient", "no attribute 'Impatient'"),
        (f"{HERE}:not_a_class", "not_a_class is a function, not a class"),
        (f"{HERE}:", "no attribute ''"),
        (":Policy", "Empty module name"),
        ("..:Policy", "pkg.module:Class"),
        ("unittest.__main__:Policy", "SystemExit"),
    ],
)
def test_import_error_of_dotted_path_has_the_reason(target: str, detail: str) -> None:
    """The error for a dotted path that cannot be imported has Python's reason."""
    with pytest.raises(ConfigError) as caught:
        plugins.resolve("batch", target)
    assert detail in str(caught.value)


def test_finding_one_policy_does_not_import_the_others() -> None:
    """Choosing a policy imports no other policy's module."""
    code = (
        "import sys; from carpool import plugins; plugins.resolve('batch', 'none');"
        "sys.exit('sidecar.policies.fixed' in sys.modules)"
    )
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode


def test_parameters_reach_the_policy() -> None:
    """The given parameters and the defaults of the others are in Params."""
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
    """Unknown, missing, ill-typed and refused parameters are errors at start-up."""
    with pytest.raises(ConfigError) as caught:
        plugins.build(Patient, params)
    assert names == [problem.name for problem in caught.value.problems]
    assert detail in str(caught.value)


def test_config_error_of_a_policy_is_passed_on() -> None:
    """A `ConfigError` raised by a policy is passed on unchanged."""
    with pytest.raises(ConfigError, match=r"^size = '-1'"):
        plugins.build(FixedWindow, {"size": -1})


def test_parameter_error_says_if_the_policy_has_none() -> None:
    """The error for a parameter says if the policy has none."""
    with pytest.raises(ConfigError, match="the policy has no parameters"):
        plugins.build(plugins.resolve("batch", "none"), {"size": 3})


def test_a_class_without_params_is_not_a_policy() -> None:
    """The error for a class without the nested Params dataclass names what is missing."""
    with pytest.raises(ConfigError, match="nested dataclass Params"):
        plugins.build(Formless, {})


def test_type_imported_only_for_checking_is_reported() -> None:
    """The error for a parameter whose type is imported only for type checking names the fix."""
    with pytest.raises(ConfigError, match=r"'Mapping' is not defined: import it outside"):
        plugins.build(Typeless, {"shares": {}})


def test_invalid_annotation_of_parameter_is_reported() -> None:
    """The error for a parameter whose annotation cannot be evaluated has Python's reason."""
    with pytest.raises(ConfigError, match="AttributeError: hard"):
        plugins.build(Mistyped, {"share": 1})


def test_policy_that_exits_when_created_is_reported() -> None:
    """A policy that ends the process when it is created is an error in its name."""
    with pytest.raises(ConfigError, match="SystemExit"):
        plugins.build(Leaving, {})
