"""The settings of one function: labels, annotations and environment read into one frozen object.

A setting is a field of `FunctionSettings`, and its key, type, default and meaning are declared only
there. `setting_spec` defines how keys become labels and variables, and how texts are read. Nothing
here resolves names of policies or reads the environment of the process by itself.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from carpool import app_setting, durations, setting_spec, setting_types
from carpool.errors import ConfigError
from carpool.setting_spec import ENV_PREFIX, LABEL_PREFIX, setting
from carpool.validation.problems import Problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from carpool.app_setting import App
    from carpool.setting_spec import Row

__all__ = ["CANARY_LABEL", "ENV_PREFIX", "LABEL_PREFIX", "FunctionSettings", "rows"]

CANARY_LABEL = f"{LABEL_PREFIX}canary"

_POSITIVE_DURATION = setting_types.duration("a duration above zero such as 200ms", lambda v: v > 0)
_DURATION = setting_types.duration("a duration such as 10ms, or 0", lambda v: v >= 0)
_COUNT = setting_types.integer("a whole number of at least 1", lambda v: v >= 1)
_COUNT_OR_ZERO = setting_types.integer("a whole number of at least 0", lambda v: v >= 0)


@dataclass(frozen=True)
class FunctionSettings:
    """How one function is batched and scaled. Every instance is valid; see `rows` for the table.

    Raises:
        ConfigError: a value is out of range, or two values contradict each other.
    """

    slo_s: float | None = setting(
        "slo",
        _POSITIVE_DURATION,
        None,
        "Latency objective of a request. SLO-aware policies need it.",
        unset="none",
    )
    percentile: float = setting(
        "slo.percentile",
        setting_types.decimal("a number between 0 and 1 such as 0.99", lambda v: 0 < v < 1),
        0.99,
        "Share of requests that must meet the objective.",
    )
    batch_policy: str = setting(
        "batch.policy",
        setting_types.name("a batch policy's name, or pkg.module:Class"),
        "deadline",
        "Batch policy, which decides when a batch leaves: a name that `carpool policies` lists, "
        "or `pkg.module:Class`. The plans of a scaling policy replace it.",
    )
    batch_max: int = setting("batch.max", _COUNT, 32, "Maximum number of requests in a batch.")
    batch_wait_s: float | None = setting(
        "batch.wait",
        _DURATION,
        None,
        "Longest wait of a batch's first request, for policies with a window. "
        "Must be shorter than the objective.",
        unset="policy's own",
    )
    batch_params: Mapping[str, Any] = setting(
        "batch.params",
        setting_types.document('a JSON object such as {"wait_s": 0.02}'),
        {},
        "Parameters of the batch policy, as a JSON object.",
        annotation_only=True,
    )
    queue_max: int = setting(
        "queue.max",
        _COUNT,
        1024,
        "Maximum number of requests queued per priority class; others get status 429.",
    )
    streams_max: int = setting(
        "streams.max",
        _COUNT,
        32,
        "Maximum number of [streams](handler.md#answers-piece-by-piece-stream) at once per "
        "instance; others wait for their turn, at most `queue.max` of them.",
    )
    background_share: float = setting(
        "background.share",
        setting_types.decimal("a share from 0 to 0.9 such as 0.1", lambda v: 0 <= v <= 0.9),  # noqa: PLR2004
        0.1,
        "Minimum share of batch slots for requests of the priority class `batch` while others "
        "wait; they fill empty slots in any case. A request names its class in `X-Carpool-Class`.",
    )
    shed: str | None = setting(
        "shed",
        setting_types.choice("observe", "on", "off", dark="observe"),
        None,
        "Refuse on arrival requests that are predicted to be late: `on`, `off`, or `observe`, "
        "which counts what would be refused and serves it.",
        unset="`on` with an objective, else `observe`",
    )
    shed_cap: float = setting(
        "shed.cap",
        setting_types.decimal("a share above 0 and at most 1 such as 0.9", lambda v: 0 < v <= 1),
        0.99,
        "Maximum share of the arrivals in ten seconds that is refused as predicted late.",
    )
    scale_policy: str = setting(
        "scale.policy",
        setting_types.name("a scaling policy's name, or pkg.module:Class"),
        "fixed",
        "Scaling policy, which decides how many instances of which size run.",
    )
    scale_min: int = setting(
        "scale.min", _COUNT_OR_ZERO, 1, "Minimum number of instances; `0` allows scaling to zero."
    )
    scale_max: int | None = setting(
        "scale.max", _COUNT, None, "Maximum number of instances.", unset="no bound"
    )
    cpu: float | None = setting(
        "cpu",
        setting_types.decimal("a number of cores above 0 such as 0.5 or 2", lambda v: v > 0),
        None,
        "Cores of one instance; may be fractional.",
        unset="no bound",
    )
    gpu: float = setting(
        "gpu",
        setting_types.decimal("a percentage from 0 to 100", lambda v: 0 <= v <= 100),  # noqa: PLR2004
        0.0,
        "Percent of one GPU's multiprocessors that an instance gets.",
    )
    memory_mb: float | None = setting(
        "memory", setting_types.memory(), None, "Memory of one instance.", unset="no bound"
    )
    apps: tuple[App, ...] = setting(
        "apps",
        app_setting.apps(),
        (),
        "Applications that share the function, each with `name`, `slo` and optionally `accuracy`, "
        "as a JSON list. A request names its own in `X-Carpool-App`.",
        annotation_only=True,
    )
    executor: str = setting(
        "executor",
        setting_types.choice("graph", "lazy"),
        "graph",
        "How a batch runs: `graph`, the model as a whole, or `lazy`, stage by stage.",
    )

    wire: str = setting(
        "wire",
        setting_types.choice("carpool", "v1", "oip"),
        "carpool",
        "Format of batches: `carpool`, the [wire format](wire.md) of Carpool's handlers, or "
        "one merged request to a [server that you have](sidecar.md#a-server-that-you-have), "
        "in the format of TF Serving, `v1`, or of the Open Inference Protocol, `oip`.",
    )
    compress_from_bytes: int = setting(
        "compress.from",
        _COUNT_OR_ZERO,
        0,
        "Size in bytes from which [responses are compressed](sidecar.md#compression) for callers "
        "that accept it; `0`: never.",
    )
    cors_origins: tuple[str, ...] = setting(
        "cors.origins",
        setting_types.origins(),
        (),
        "Origins of [web pages](sidecar.md#web-pages) that may call the function, separated by "
        "commas; `*`: all.",
        unset="none",
        annotation_only=True,
    )
    canary: Mapping[str, float] = setting(
        "canary",
        setting_types.percents(
            "functions with their percent of the calls, at most 100 together, "
            "such as classify-v2=10%"
        ),
        {},
        "Other functions that answer a share of this one's calls, as [canaries or for "
        "A/B tests](canary.md), separated by commas.",
        unset="none",
    )

    def __post_init__(self) -> None:
        """Check ranges and contradictions here, so that all constructors are equally strict."""
        problems = Problems()
        for row in rows():
            value = getattr(self, row.field)
            unset = value is None and row.default is None
            if not (unset or row.value_type.accepts(value)):
                problems.add(row.key, value, row.value_type.expected)
        problems.raise_if_any()
        _contradictions(self, problems)
        problems.raise_if_any()

    @property
    def objective_s(self) -> float | None:
        """Longest objective of the function or its applications; None without objectives."""
        objectives = [self.slo_s, *(app.slo_s for app in self.apps)]
        return max([known for known in objectives if known is not None], default=None)

    @property
    def shedding(self) -> str:
        """Effective value of `shed`; if unset, ``on`` with an objective, else ``observe``."""
        return self.shed or ("observe" if self.objective_s is None else "on")

    @property
    def scaled(self) -> bool:
        """Whether a scaler manages the function's instances, for which it is the front."""
        return self.scale_policy != "fixed"

    @classmethod
    def from_labels(
        cls, labels: Mapping[str, str] | None, annotations: Mapping[str, str] | None = None
    ) -> Self:
        """Read a deployment's labels and annotations, ignoring names without ``com.carpool.``.

        A value that is too long for a label may be an annotation of the same name; JSON values must
        be annotations.

        Raises:
            ConfigError: lists every unknown name and every ill-formed or contradicting value.
        """
        problems = Problems()
        known = {row.label: row for row in rows()}
        texts = setting_spec.with_prefix(annotations, LABEL_PREFIX)
        for name, text in setting_spec.with_prefix(labels, LABEL_PREFIX).items():
            if name in known and known[name].annotation_only:
                problems.add(name, text, "an annotation", "move it from labels to annotations")
            elif texts.setdefault(name, text) != text:
                problems.add(name, text, f"the annotation's {texts[name]!r}", "give it once")
        return cls._from_texts(known, texts, problems)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Read environment variables, ignoring names that do not begin with ``carpool_``.

        Raises:
            ConfigError: lists every unknown name and every ill-formed or contradicting value.
        """
        known = {row.env: row for row in rows()}
        return cls._from_texts(known, setting_spec.with_prefix(env, ENV_PREFIX), Problems())

    def to_env(self) -> dict[str, str]:
        """Return the environment that `from_env` reads as these settings, without defaults."""
        return {
            row.env: row.value_type.write(value)
            for row in rows()
            if (value := getattr(self, row.field)) != row.default
        }

    @classmethod
    def _from_texts(
        cls, known: Mapping[str, Row], texts: Mapping[str, str], problems: Problems
    ) -> Self:
        values = setting_spec.read(known, texts, problems)
        names = {row.key: name for name, row in known.items()}
        try:
            settings = cls(**values)
        except ConfigError as error:
            renamed = [dataclasses.replace(p, name=names[p.name]) for p in error.problems]
            problems.extend("", ConfigError(renamed))
            problems.raise_if_any()
            raise
        problems.raise_if_any()
        return settings


def rows() -> tuple[Row, ...]:
    """Return the settings of a function, in the order of the documentation."""
    return setting_spec.rows(FunctionSettings)


def _contradictions(settings: FunctionSettings, problems: Problems) -> None:
    """Add a problem for each combination of valid values that contradict each other."""
    low, high = settings.scale_min, settings.scale_max
    if high is not None and low > high:
        problems.add("scale.min", low, f"at most scale.max, which is {high}")
    if settings.wire != "carpool" and settings.scaled:
        hint = "fronts forward batches to sidecars in Carpool's own format"
        problems.add("wire", settings.wire, "carpool, as there is a scaling policy", hint)
    if settings.batch_wait_s is None:
        return
    objectives = {"slo": settings.slo_s} | {f"apps[{a.name}].slo": a.slo_s for a in settings.apps}
    for name, slo_s in objectives.items():
        if slo_s is not None and settings.batch_wait_s >= slo_s:
            wait, slo = durations.format(settings.batch_wait_s), durations.format(slo_s)
            problems.add(
                "batch.wait", wait, f"less than {name}, which is {slo}", "a request would be late"
            )
