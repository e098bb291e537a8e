"""YAML and JSON as plain values with line numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool.errors import ConfigError
from carpool.validation import rules, yaml_values
from tests.effort import scaled

if TYPE_CHECKING:
    from pathlib import Path


def load(folder: Path, text: str, name: str = "a.yaml") -> yaml_values.Document:
    """Write ``text`` to a file and load it."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return yaml_values.load(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("-3", -3),
        ("010", 10),
        ("1.5", 1.5),
        ("1e-4", 1e-4),
        ("9.0e-5", 9e-5),
        (".5", 0.5),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("0x10", "0x10"),
        (".inf", ".inf"),
        ("2024-01-01", "2024-01-01"),
        ("true", True),
        ("no", "no"),
        ("on", "on"),
        ("null", None),
        ("~", None),
        ("'1'", "1"),
        ('"true"', "true"),
        ("text", "text"),
        ("9" * 400, float("inf")),
    ],
)
def test_scalars(tmp_path: Path, text: str, expected: object) -> None:
    """A plain scalar is a number, a boolean, null or text; a quoted one is text."""
    data = load(tmp_path, f"a: {text}\n").data
    assert {"a": expected} == data
    assert isinstance(data, dict)
    assert type(expected) is type(data["a"])


def test_every_value_has_its_line(tmp_path: Path) -> None:
    """A problem has the line of its value, or of where a missing one should be."""
    document = load(tmp_path, "a:\n  - b: 1\n  - b: 2\n    c.d: 3\ne:\n")
    assert {"a": [{"b": 1}, {"b": 2, "c.d": 3}], "e": None} == document.data
    paths = ("a[0].b", "a[1].c.d", "a[1].missing", "a[7]", "nowhere", "")
    lines = [document.name(path).split(":")[1] for path in paths]
    assert ["2", "4", "3", "2", "1", "1"] == lines


def test_rule_problem_has_file_and_line(tmp_path: Path) -> None:
    """A problem found by a rule has its file and line."""
    document = load(tmp_path, "a: 1\nb: x\n")
    rule = rules.record({"b": rules.number("a number", lambda _: True)}, frozenset({"b"}))
    with pytest.raises(ConfigError) as caught:
        document.check(rule)
    path = tmp_path / "a.yaml"
    assert [f"{path}:1: a", f"{path}:2: b"] == [p.name for p in caught.value.problems]


def test_merges_and_aliases(tmp_path: Path) -> None:
    """Anchors, aliases and merge keys work as in YAML."""
    document = load(tmp_path, "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: *a\n")
    assert {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2}} == document.data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1\na: 2\n", r"a.yaml:2: .*expected each key once"),
        ("a: [1\n", "expected valid YAML"),
        ("", "expected a mapping; the file is empty"),
        ("&a [*a]\n", "expected valid YAML; an alias contains itself"),
        ("a: !!python/object:os.system x\n", None),
    ],
)
def test_broken_files(tmp_path: Path, text: str, expected: str | None) -> None:
    """Invalid YAML is an error, and tags never construct objects."""
    if expected is None:
        assert {"a": "x"} == load(tmp_path, text).data
        return
    with pytest.raises(ConfigError, match=expected):
        load(tmp_path, text)


def bomb(levels: int, data: str) -> str:
    """Return a few lines of YAML that represent nine times more values with each level."""
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{n}: &a{n} " + data.format(*[f"*a{n - 1}"] * 9) for n in range(1, levels)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "data", ["[{}, {}, {}, {}, {}, {}, {}, {}, {}]", "{{<<: [{}, {}, {}, {}, {}, {}, {}, {}, {}]}}"]
)
@pytest.mark.parametrize("levels", [6, 12, 400])
def test_exponential_aliases_are_refused(tmp_path: Path, data: str, levels: int) -> None:
    """A kilobyte that represents billions of values is refused before they are created."""
    with pytest.raises(ConfigError, match=r"aliases refer to aliases|levels of nesting"):
        load(tmp_path, bomb(levels, data))
    assert load(tmp_path, bomb(3, data)).data


def test_depth(tmp_path: Path) -> None:
    """Nesting is read up to a hundred levels, and refused beyond that."""
    assert load(tmp_path, "[" * 100 + "]" * 100).data
    for depth in (101, 100 + scaled(1400)):
        with pytest.raises(ConfigError, match=r"nesting|valid YAML"):
            load(tmp_path, "[" * depth + "]" * depth)


def test_a_large_file_without_aliases(tmp_path: Path) -> None:
    """A large file without aliases is accepted."""
    (name, values), *_ = load(tmp_path, f"a: [{'1, ' * 10_000}1]\n").data.items()  # type: ignore[attr-defined]
    assert ("a", 10_001) == (name, len(values))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Zs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abc.xyz", min_size=1, max_size=9), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(value=JSON)
def test_json_is_read_like_a_json_parser(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    """A JSON file gives the same values as a JSON parser, however it is indented."""
    folder = tmp_path_factory.getbasetemp()
    assert {"value": value} == load(
        folder, json.dumps({"value": value}, indent="\t"), "a.json"
    ).data
