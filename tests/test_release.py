"""Tests of what `make release` writes about a release."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from scripts import release

ROOT = Path(__file__).parents[1]


def test_package_names_the_versions_of_python_that_were_tried() -> None:
    """The classifiers have the versions with which RELEASING.md says that a release was tried."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    language = "Programming Language :: Python :: "
    named = [each.removeprefix(language) for each in project["classifiers"] if language in each]
    (said,) = re.findall(r"has passed with (.*)\. With", (ROOT / "RELEASING.md").read_text())
    assert re.findall(r"(3\.\d+)\.\d+", said) == named
    assert project["requires-python"] == f">={named[0]}"


@pytest.mark.parametrize(
    ("changelog", "state"),
    [
        ("## [Unreleased]\n\n## [0.2.0] - 2026-01-01\n- a\n", "has its section"),
        ("## [Unreleased]\n- a\n\n## [0.1.0] - 2025-01-01\n- b\n", "still under Unreleased"),
        ("## [Unreleased]\n\n## [0.1.0] - 2025-01-01\n- b\n", "has no section"),
    ],
)
def test_release_without_changelog_section_is_noticed(changelog: str, state: str) -> None:
    """The changelog has a section for the release, one to be renamed, or none."""
    assert state in release.changelog_state(changelog, "0.2.0")


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("## [0.2.0]\n\n### Upgrading\n\n- a\n\n### Added\n", True),
        ("## [Unreleased]\n\n### Upgrading\n\n- a\n", True),
        ("## [Unreleased]\n\n### Upgrading\n\n### Added\n\n- a\n", False),
        ("## [0.2.0]\n\n### Added\n\n- a\n\n## [0.1.0]\n\n### Upgrading\n\n- b\n", False),
        ("## [0.1.0]\n\n### Upgrading\n\n- b\n", False),
    ],
)
def test_release_without_upgrade_notes_is_refused(section: str, says: bool) -> None:  # noqa: FBT001  a row of the table
    """A part on upgrading, in the section of the version or in Unreleased, must have text."""
    assert says == release.says_how_to_upgrade(f"# Changelog\n\n{section}", "0.2.0")


def test_bill_of_materials_lists_installed_packages() -> None:
    """The bill has Carpool as its subject and lists packages with version, licence and purl."""
    packages = [
        {"name": "carpool", "version": "0.2.0"},
        {"name": "PyYAML", "version": "6.0", "license": "MIT"},
        {"name": "a_b", "version": "1", "license_expression": "BSD-3-Clause", "license": "x" * 999},
        {"name": "long", "version": "2", "license": "the whole text of a licence" * 99},
        {"name": "m", "version": "3", "classifier": ["License :: OSI Approved :: BSD License"]},
        {"name": "pip", "version": "25"},
    ]
    found = release.contents({"installed": [{"metadata": each} for each in packages]})
    assert ("CycloneDX", "carpool") == (
        found["bomFormat"],
        found["metadata"]["component"]["name"],
    )
    purls = [component["purl"] for component in found["components"]]
    assert ["pkg:pypi/a-b@1", "pkg:pypi/long@2", "pkg:pypi/m@3", "pkg:pypi/pyyaml@6.0"] == purls
    licences = [component.get("licenses") for component in found["components"]]
    assert [
        [{"license": {"name": "BSD-3-Clause"}}],
        None,
        [{"license": {"name": "BSD License"}}],
        [{"license": {"name": "MIT"}}],
    ] == licences
