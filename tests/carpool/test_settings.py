"""Function settings: strict validation, complete reports, one naming rule, one table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpool import settings
from carpool.app_setting import App
from carpool.errors import ConfigError, Problem
from carpool.settings import FunctionSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT = FunctionSettings()


def _problems(labels: Mapping[str, str], annotations: Mapping[str, str] = {}) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        FunctionSettings.from_labels(
            {f"com.carpool.{key}": text for key, text in labels.items()},
            {f"com.carpool.{key}": text for key, text in annotations.items()},
        )
    return list(caught.value.problems)


def test_nothing_given_means_the_defaults() -> None:
    """Without Carpool labels or variables, all settings have their defaults."""
    assert DEFAULT == FunctionSettings.from_labels(None)
    assert DEFAULT == FunctionSettings.from_labels({"app": "web"}, {"com.example.slo": "x"})
    assert DEFAULT == FunctionSettings.from_env({"PATH": "/bin", "exec_timeout": "soon"})
    assert {} == DEFAULT.to_env()


def test_the_defaults() -> None:
    """The defaults are the documented ones."""
    assert ("deadline", 32, 1024, "fixed", 1, None) == (
        DEFAULT.batch_policy,
        DEFAULT.batch_max,
        DEFAULT.queue_max,
        DEFAULT.scale_policy,
        DEFAULT.scale_min,
        DEFAULT.scale_max,
    )
    assert (None, 0.99, None, "graph", ()) == (
        DEFAULT.slo_s,
        DEFAULT.percentile,
        DEFAULT.batch_wait_s,
        DEFAULT.executor,
        DEFAULT.apps,
    )


def test_every_setting_is_read_from_labels_and_annotations() -> None:
    """Each setting has a label; JSON values are annotations."""
    labels = {
        "slo": "200ms",
        "slo.percentile": "0.95",
        "batch.policy": "fixed",
        "batch.max": "16",
        "batch.wait": "10ms",
        "background.share": "0.2",
        "queue.max": "64",
        "shed": "on",
        "shed.cap": "0.5",
        "scale.policy": "infless",
        "scale.min": "0",
        "scale.max": "4",
        "cpu": "0.5",
        "gpu": "25",
        "memory": "512Mi",
        "executor": "lazy",
        "wire": "carpool",
        "compress.from": "1024",
        "canary": "classify-v2=10%",
        "streams.max": "8",
    }
    annotations = {
        "batch.params": '{"wait_s": 0.02}',
        "apps": '[{"name": "web", "slo": "1s"}, {"name": "vr", "slo": "80ms", "accuracy": 0.7}]',
        "cors.origins": "https://app.example.com,*",
    }
    read = FunctionSettings.from_labels(
        {f"com.carpool.{key}": text for key, text in labels.items()},
        {f"com.carpool.{key}": text for key, text in annotations.items()},
    )
    assert set(labels) | set(annotations) == {row.key for row in settings.rows()}
    assert read == FunctionSettings(
        slo_s=0.2,
        percentile=0.95,
        batch_policy="fixed",
        batch_max=16,
        batch_wait_s=0.01,
        batch_params={"wait_s": 0.02},
        background_share=0.2,
        queue_max=64,
        shed="on",
        shed_cap=0.5,
        scale_policy="infless",
        scale_min=0,
        scale_max=4,
        cpu=0.5,
        gpu=25,
        memory_mb=536.870912,
        apps=(App("web", 1.0), App("vr", 0.08, 0.7)),
        executor="lazy",
        compress_from_bytes=1024,
        cors_origins=("https://app.example.com", "*"),
        canary={"classify-v2": 10.0},
        streams_max=8,
    )
    assert read == FunctionSettings.from_env(read.to_env())


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("https://App.Example.com", "https://app.example.com"),
        ("HTTPS://app.example.com:443", "https://app.example.com"),
        ("http://127.0.0.1:080", "http://127.0.0.1"),
        ("https://app.example.com:80", "https://app.example.com:80"),
        ("http://[::1]:3000", "http://[::1]:3000"),
    ],
)
def test_origins_are_normalised(written: str, sent: str) -> None:
    """Origins are normalised, as they are compared literally with those of browsers."""
    read = FunctionSettings.from_labels({}, {"com.carpool.cors.origins": written})
    assert (sent,) == read.cors_origins


@pytest.mark.parametrize("written", ["app.example.com", "https://a/", "http://a:70000", "null"])
def test_invalid_origin_is_refused(written: str) -> None:
    """An origin that no browser could send is refused."""
    with pytest.raises(ConfigError, match="origins such as"):
        FunctionSettings.from_labels({}, {"com.carpool.cors.origins": written})


def test_former_name_of_choice_is_accepted() -> None:
    """``shed: dark`` in a stack file is read as ``observe``."""
    assert "observe" == FunctionSettings.from_labels({"com.carpool.shed": "dark"}).shed


def test_a_long_value_may_be_an_annotation() -> None:
    """A value that a label cannot hold, such as one with a colon, is read from an annotation."""
    name = "com.carpool.batch.policy"
    assert "my.pkg:Rule" == FunctionSettings.from_labels({}, {name: "my.pkg:Rule"}).batch_policy
    assert "fixed" == FunctionSettings.from_labels({name: "fixed"}, {name: "fixed"}).batch_policy


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("slo", "200", "a duration above zero"),
        ("slo", "0", "a duration above zero"),
        ("slo", "-5ms", "a duration above zero"),
        ("slo.percentile", "1", "between 0 and 1"),
        ("slo.percentile", "99%", "between 0 and 1"),
        ("slo.percentile", "nan", "between 0 and 1"),
        ("slo.percentile", "1" * 400, "between 0 and 1"),
        ("batch.policy", "", "policy's name"),
        ("batch.max", "0", "at least 1"),
        ("batch.max", "8.0", "at least 1"),
        ("batch.max", "1_0", "at least 1"),
        ("batch.max", "9" * 5000, "at least 1"),
        ("batch.wait", "-1ms", "a duration"),
        ("queue.max", "many", "at least 1"),
        ("scale.min", "-1", "at least 0"),
        ("scale.max", "0", "at least 1"),
        ("cpu", "0", "above 0"),
        ("cpu", "1e999", "above 0"),
        ("cpu", "100m", "above 0"),
        ("gpu", "101", "0 to 100"),
        ("memory", "512", "at least 1MB"),
        ("memory", "512mb", "at least 1MB"),
        ("memory", "-1Gi", "at least 1MB"),
        ("executor", "eager", "graph or lazy"),
        ("wire", "grpc", "carpool or v1"),
    ],
)
def test_malformed_value_is_reported_with_expectation(key: str, text: str, expected: str) -> None:
    """The report has the label, the given value and the expected form."""
    (problem,) = _problems({key: text})
    assert (f"com.carpool.{key}", text) == (problem.name, problem.value)
    assert expected in problem.expected


@pytest.mark.parametrize(
    ("text", "size_mb"),
    [
        *[("512Mi", 536.870912), ("2Gi", 2147.483648), ("4GiB", 4294.967296), ("2048Ki", 2.097152)],
        *[("500MB", 500), ("500M", 500), ("1.5GB", 1500), ("1000k", 1), ("1000000", 1)],
    ],
)
def test_memory_is_read_in_the_units_people_use(text: str, size_mb: float) -> None:
    """Kubernetes units and plain ones are read; a bare number is bytes."""
    read = FunctionSettings.from_env({"carpool_memory": text})
    assert size_mb == read.memory_mb
    assert read == FunctionSettings.from_env(read.to_env())


@pytest.mark.parametrize(
    ("text", "name", "detail"),
    [
        ("web=200ms", "com.carpool.apps", "Expecting value"),
        ("{}", "com.carpool.apps", "a JSON list"),
        ("[1]", "com.carpool.apps[0]", "an object"),
        ('[{"name": "web"}]', "com.carpool.apps[0].slo", "missing"),
        ('[{"name": "web", "slo": 0.2}]', "com.carpool.apps[0].slo", "duration"),
        ('[{"name": "web", "slo": "0s"}]', "com.carpool.apps[0].slo", "above zero"),
        ('[{"name": "*", "slo": "1s"}]', "com.carpool.apps[0].name", "a name of letters"),
        ('[{"name": "a", "slo": "1s", "acuracy": 1}]', "com.carpool.apps[0].acuracy", "accuracy"),
        ('[{"name": "a", "slo": "1s", "accuracy": 2}]', "com.carpool.apps[0].accuracy", "0 to 1"),
        ('[{"name": "a", "slo": "1s", "accuracy": NaN}]', "com.carpool.apps", "NaN"),
        ('[{"name": "a", "name": "b", "slo": "1s"}]', "com.carpool.apps", "twice"),
        ('[{"name":"a","slo":"1s"},{"name":"a","slo":"1s"}]', "com.carpool.apps[1].name", "[0]"),
        ("[" * 100_000, "com.carpool.apps", "nested too deeply"),
    ],
)
def test_malformed_apps_are_reported_by_path(text: str, name: str, detail: str) -> None:
    """The report names the path inside the JSON."""
    problems = _problems({}, {"apps": text})
    assert [name] == [problem.name for problem in problems]
    assert detail in str(problems[0])


def test_batch_params_are_a_json_object() -> None:
    """A list or a bare word is refused; the content of an object is left to the policy."""
    for text in ("[1]", "fast", '{"a": Infinity}'):
        (problem,) = _problems({}, {"batch.params": text})
        assert "a JSON object" in problem.expected


def test_unknown_name_error_suggests_the_nearest() -> None:
    """The error for a misspelt label, annotation or variable names the nearest known one."""
    (problem,) = _problems({"batch.maks": "8"})
    assert "did you mean 'com.carpool.batch.max'?" in str(problem)
    (problem,) = _problems({}, {"aps": "[]"})
    assert "did you mean 'com.carpool.apps'?" in str(problem)
    with pytest.raises(ConfigError, match="did you mean 'carpool_batch_max'"):
        FunctionSettings.from_env({"carpool_batch_maks": "8"})


def test_json_settings_belong_in_annotations() -> None:
    """A JSON value in a label is refused with the fix."""
    (problem,) = _problems({"apps": "[]"})
    assert "move it from labels to annotations" in str(problem)


def test_label_and_annotation_must_agree() -> None:
    """A label and an annotation of the same name must agree."""
    (problem,) = _problems({"batch.max": "8"}, {"batch.max": "16"})
    assert ("com.carpool.batch.max", "8") == (problem.name, problem.value)
    assert "'16'" in problem.expected


@pytest.mark.parametrize(
    ("labels", "name", "expected"),
    [
        ({"scale.min": "5", "scale.max": "2"}, "scale.min", "at most scale.max, which is 2"),
        ({"slo": "50ms", "batch.wait": "50ms"}, "batch.wait", "less than slo, which is 50ms"),
    ],
)
def test_contradictions_are_found(labels: dict[str, str], name: str, expected: str) -> None:
    """Two valid values that contradict each other are reported, by label and by variable."""
    (problem,) = _problems(labels)
    assert (f"com.carpool.{name}", expected) == (problem.name, problem.expected)
    env = {"carpool_" + key.replace(".", "_"): text for key, text in labels.items()}
    with pytest.raises(ConfigError, match="carpool_" + name.replace(".", "_")):
        FunctionSettings.from_env(env)


def test_batching_window_must_be_below_every_objective() -> None:
    """A batching window as long as the objective of any application is refused."""
    apps = json.dumps([{"name": "web", "slo": "1s"}, {"name": "vr", "slo": "20ms"}])
    (problem,) = _problems({"batch.wait": "20ms"}, {"apps": apps})
    assert "less than apps[vr].slo, which is 20ms" == problem.expected


def test_all_problems_are_reported_at_once() -> None:
    """Unknown, malformed and contradictory settings are reported together."""
    labels = {"slo": "fast", "batch.maks": "8", "scale.min": "3", "scale.max": "2", "gpu": "200"}
    problems = _problems(labels, {"apps": '[{"name": ""}]'})
    names = [problem.name.removeprefix("com.carpool.") for problem in problems]
    assert ["apps[0].name", "apps[0].slo", "batch.maks", "gpu", "slo", "scale.min"] == names
    lines = str(ConfigError(problems)).splitlines()
    assert 6 == len(lines)


@pytest.mark.parametrize("values", [{"batch_max": 0}, {"percentile": 1.5}, {"slo_s": 0.0}])
def test_settings_created_in_code_are_validated(values: dict[str, float]) -> None:
    """Settings created in code are validated as strictly as those that are read."""
    with pytest.raises(ConfigError):
        FunctionSettings(**values)  # type: ignore[arg-type]  # the values differ in type


def test_only_optional_settings_can_be_none() -> None:
    """Only optional settings can be ``None``."""
    with pytest.raises((ConfigError, TypeError)):
        FunctionSettings(batch_max=None)  # type: ignore[arg-type]  # the point of the test


@given(
    st.builds(
        FunctionSettings,
        slo_s=st.none() | st.floats(1, 1000).map(lambda v: round(v, 6)),
        percentile=st.floats(0.01, 0.99),
        batch_max=st.integers(1, 10**6),
        batch_wait_s=st.none() | st.integers(0, 999_999).map(lambda us: us / 10**6),
        batch_params=st.dictionaries(st.text(), st.integers() | st.text() | st.booleans()),
        scale_min=st.integers(0, 5),
        scale_max=st.none() | st.integers(5, 100),
        cpu=st.none() | st.floats(0.001, 1e6),
        gpu=st.floats(0, 100),
        memory_mb=st.none() | st.integers(1, 10**6),
        executor=st.sampled_from(["graph", "lazy"]),
    )
)
def test_settings_round_trip_through_the_environment(given_: FunctionSettings) -> None:
    """A sidecar reads from its environment the settings that a provider wrote."""
    assert given_ == FunctionSettings.from_env(given_.to_env())
