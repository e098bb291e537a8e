"""Tests of reading stack files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from carpool.errors import ConfigError
from faas_stack.stack.stack_file import StackFile, load

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "version: 1.0\nprovider:\n  name: openfaas\n  gateway: http://127.0.0.1:8080\n"
GOOD = "lang: py\nhandler: ./fn\nimage: fn:latest\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a template ``py`` and a handler ``fn``."""
    template = tmp_path / "template" / "py"
    template.mkdir(parents=True)
    (template / "template.yml").write_text(
        "language: py\nfprocess: python -m thing\nbuild_options:\n- name: dev\n  packages: [gcc]\n"
    )
    (tmp_path / "fn").mkdir()
    return tmp_path


def read(folder: Path, text: str, **env: str) -> StackFile:
    """Load ``text`` as a stack file in ``folder``."""
    path = folder / "stack.yaml"
    path.write_text(text)
    return load(path, env)


def function(body: str) -> str:
    """Return a stack file with one function ``fn``."""
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    return f"{HEAD}functions:\n  fn:\n{indented}"


def test_reads_every_key(folder: Path) -> None:
    """Every key of faas-cli is read with the same meaning."""
    (folder / "env.yml").write_text("environment:\n  b: file\n  c: 1.50\n")
    body = """\
lang: py
handler: ./fn
image: ${OWNER:-me}/fn:0.1
fprocess: python other.py
environment: {a: true, b: inline, d: "x"}
environment_file: [env.yml]
secrets: [s1, s2]
skip_build: false
constraints: ["gpu = yes"]
labels: {com.carpool.slo: 200ms, plain: 5}
annotations: {topic: cats}
limits: {memory: 128Mi, cpu: 500m}
requests: {cpu: "1"}
readonly_root_filesystem: true
build_options: [dev]
build_args: {X: 1}
build_secrets: {k: ./file}
platforms: linux/amd64,linux/arm64
namespace: team
"""
    (folder / "lib").mkdir()
    extra = "configuration:\n  templates: [{name: py, source: x}]\n  copy: [lib]\n"
    stack = read(folder, function(body) + extra, OWNER="us")
    found = stack.functions[0]
    assert ("fn", "us/fn:0.1", "py", folder / "fn") == (
        *(found.name, found.image, found.lang),
        found.handler,
    )
    assert "python other.py" == found.fprocess
    assert {"a": "true", "b": "file", "c": "1.50", "d": "x"} == found.environment
    assert (("s1", "s2"), ("gpu = yes",)) == (found.secrets, found.constraints)
    assert {"com.carpool.slo": "200ms", "plain": "5"} == found.labels
    assert {"topic": "cats"} == found.annotations
    assert ({"memory": "128Mi", "cpu": "500m"}, {"cpu": "1"}) == (found.limits, found.requests)
    assert (True, "team") == (found.read_only_root, found.namespace)
    assert ("lib",) == stack.copy


def test_takes_fprocess_from_the_template(folder: Path) -> None:
    """A function without a command uses its template's."""
    assert "python -m thing" == read(folder, function(GOOD)).functions[0].fprocess


def test_merges_and_anchors(folder: Path) -> None:
    """YAML merges work, and the function's own keys override them."""
    text = (
        f"{HEAD}functions:\n  fn: &base\n    lang: py\n    handler: fn\n    image: a\n"
        "    labels: {x: '1'}\n  other:\n    <<: *base\n    image: a\n    labels: {x: '2'}\n"
    )
    first, second = read(folder, text).functions
    assert ({"x": "1"}, {"x": "2"}) == (first.labels, second.labels)


def test_template_is_not_needed_where_nothing_is_built(folder: Path) -> None:
    """``skip_build`` and ``lang: dockerfile`` need no template."""
    assert None is read(folder, function("skip_build: true\nimage: a\n")).functions[0].handler
    found = read(folder, function("lang: Dockerfile\nhandler: fn\nimage: a\n")).functions[0]
    assert ("dockerfile", None) == (found.lang, found.template)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "the file is empty", id="empty"),
        pytest.param("- a\n", "= 'a list': expected a mapping", id="list"),
        pytest.param(f"{HEAD}x: [1\n", r"stack.yaml:6 = .*: expected valid YAML", id="not-yaml"),
        pytest.param("a: \x01\n", "expected valid YAML", id="control-character"),
        pytest.param("a: b\n---\nc: d\n", "expected valid YAML", id="two-documents"),
        pytest.param("[" * 3000, "expected valid YAML", id="too-deep", marks=pytest.mark.slow),
        pytest.param("a: &a {<<: *a}\n", "an alias contains itself", id="merges-itself"),
        pytest.param(HEAD, "functions = '': expected at least one function", id="no-functions"),
        pytest.param(f"{HEAD}functions: [a]\n", "functions = 'a list'", id="functions-list"),
        pytest.param(
            HEAD.replace("1.0", "2.0") + "functions: {}\n",
            r":1: version = '2.0': expected 1.0",
            id="version",
        ),
        pytest.param(
            "functions: {fn: {lang: py, handler: fn, image: a}}\n",
            "provider is missing: expected name: openfaas",
            id="no-provider",
        ),
        pytest.param(
            HEAD.replace("openfaas", "faas") + "functions: {}\n",
            "provider.name = 'faas': expected openfaas",
            id="provider",
        ),
        pytest.param(
            f"{HEAD}function: {{}}\n", ":5: function = .*did you mean 'functions'", id="top-key"
        ),
        pytest.param(
            function(GOOD + "label: {a: b}\n"),
            r":10: functions.fn.label = .*did you mean 'labels'",
            id="function-key",
        ),
        pytest.param(
            function(GOOD + "limits: {nvidia.com/gpu: 1}\n"),
            "functions.fn.limits.nvidia.com/gpu = '1': expected one of cpu, memory",
            id="gpu-limit",
        ),
        pytest.param(
            function(GOOD + "limits: {memory: lots}\n"),
            "limits.memory = 'lots': expected a quantity",
            id="quantity",
        ),
        pytest.param(
            function(GOOD + "secrets: s1\n"), "secrets = 's1': expected a list", id="type"
        ),
        pytest.param(
            function(GOOD + "labels: {a: {b: c}}\n"),
            "labels.a = 'a mapping': expected text",
            id="map",
        ),
        pytest.param(
            function(GOOD + "skip_build: maybe\n"), "'maybe': expected true or false", id="flag"
        ),
        pytest.param(function(GOOD + "image: b\n"), "expected each key once", id="twins"),
        pytest.param(function(GOOD + "? [a]\n: b\n"), "expected a plain key", id="complex-key"),
        pytest.param(
            function("lang: py\nhandler: ./fnn\nimage: a\n"),
            r":8: functions.fn.handler = './fnn': expected a folder; did you mean 'fn'",
            id="handler",
        ),
        pytest.param(
            function('lang: py\nhandler: "a\\0b"\nimage: a\n'),
            r"functions.fn.handler = .*: expected a folder",
            id="handler-no-path",
        ),
        pytest.param(
            function(f"lang: py\nhandler: ./{'x' * 300}\nimage: a\n"),
            r"functions.fn.handler = .*: expected a folder",
            id="handler-too-long",
        ),
        pytest.param(
            function(GOOD + 'environment_file: ["a\\0b"]\n'),
            r"expected a path \(embedded null byte\)",
            id="environment-file-no-path",
        ),
        pytest.param(
            f'{HEAD}configuration: {{copy: ["a\\0b", {"x" * 300}]}}\n'
            "functions: {fn: {lang: py, handler: fn, image: a}}\n",
            r"(?s)copy\[0\].*expected an existing path.*copy\[1\]",
            id="copy-no-path",
        ),
        pytest.param(
            function("lang: pyy\nhandler: ./fn\nimage: a\n"),
            r":7: functions.fn.lang = 'pyy': expected a template: .*py.*did you mean 'py'",
            id="template",
        ),
        pytest.param(
            function("handler: ./fn\nimage: a\n"),
            "functions.fn.lang is missing: expected",
            id="no-lang",
        ),
        pytest.param(
            function("lang: py\nhandler: ./fn\n"),
            "functions.fn.image is missing: expected",
            id="no-image",
        ),
        pytest.param(
            function("lang: py\nimage: a\n"),
            "functions.fn.handler is missing: expected",
            id="no-handler",
        ),
        pytest.param(
            function(GOOD + "labels: {com.carpool.slow: 1s}\n"),
            "com.carpool.slow = '1s': .*did you mean 'com.carpool.slo'",
            id="label",
        ),
        pytest.param(
            function(GOOD + "labels: {com.carpool.slo: fast}\n"),
            "com.carpool.slo = 'fast': expected a duration",
            id="label-value",
        ),
        pytest.param(
            function(GOOD + "labels: {com.carpool.batch.policy: dedline}\n"),
            "batch.policy = 'dedline': .*did you mean 'deadline'",
            id="policy",
        ),
        pytest.param(
            function(GOOD + "environment_file: [none.yml]\n"),
            "none.yml': expected an existing file",
            id="environment-file",
        ),
        pytest.param(
            function(GOOD + "build_options: [prod]\n"),
            "build_options.prod = 'prod': expected a build option of py: dev",
            id="build-option",
        ),
        pytest.param(
            f"{HEAD}functions: {{Fn_1: {{lang: py, handler: fn, image: a}}}}\n",
            "functions = 'Fn_1': expected a name",
            id="name",
        ),
        pytest.param(
            f"{HEAD}functions:\n  a: {{lang: py, handler: fn, image: i}}\n"
            "  b: {lang: py, handler: template, image: i}\n",
            "functions.b.image = 'i': expected its own image",
            id="shared-image",
        ),
        pytest.param(
            function(GOOD) + "configuration: {copy: [../x]}\n",
            "an existing path below the stack file's folder",
            id="copy-outside",
        ),
        pytest.param(function(GOOD + "fprocess: ${A:?}\n"), r":10 = '\$\{A:\?\}'", id="expression"),
    ],
)
def test_problem_has_file_line_value_and_expectation(
    folder: Path, text: str, expected: str
) -> None:
    """A problem is reported with file, line, value, expectation and nearest name."""
    with pytest.raises(ConfigError, match=expected):
        read(folder, text)


def test_independent_problems_are_reported_together(folder: Path) -> None:
    """Independent problems of several functions are reported in one error."""
    text = (
        f"{HEAD}functions:\n  a: {{lang: py, handler: no, image: a, x: 1}}\n"
        "  b: {lang: no, handler: fn, labels: {com.carpool.cpu: none}}\n"
    )
    with pytest.raises(ConfigError) as caught:
        read(folder, text)
    names = [problem.name.partition(": ")[2] for problem in caught.value.problems]
    assert [
        *("functions.a.x", "functions.a.handler"),
        *("functions.b.lang", "functions.b: com.carpool.cpu", "functions.b.image"),
    ] == names


@pytest.mark.parametrize(
    ("content", "expected"), [(None, "an existing file"), (b"a: \xff\n", "a text file in UTF-8")]
)
def test_unreadable_file(tmp_path: Path, content: bytes | None, expected: str) -> None:
    """A file that is missing or not text is an error."""
    path = tmp_path / "stack.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=expected):
        load(path, {})
