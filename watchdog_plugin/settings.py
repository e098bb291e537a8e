"""The handler's own settings, read strictly from the environment, and only here.

How a function is batched is decided by `carpool.settings`; the handler takes a few values from
there, such as the cores a model may use and the maximum number of rows of one run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from carpool import setting_spec, setting_types
from carpool.errors import ConfigError, Problem
from carpool.lazy_batching.rules import Rules
from carpool.setting_spec import variable
from carpool.setting_types import SettingType
from carpool.settings import FunctionSettings
from carpool.validation.problems import Problems
from watchdog_plugin.handler_contract import RAGGED

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HandlerSettings"]

_MIB = 1024 * 1024
_ANY = "*"
_PREFIX = "handler_"
_STREAMS = 256  # minimum, because several sidecars may each send as many as the setting allows
_TEXT = setting_types.text()
_PATH = setting_types.path()
_MEBIBYTES = setting_types.mebibytes()


def _lengths() -> SettingType:
    """Return the type of variable-length declarations, with the names of handler.py."""
    declared = setting_types.document('a JSON object, as in {"ragged": {"input_ids": 1}}')

    def read(text: str) -> Any:  # noqa: ANN401  what `declared` reads
        value = declared.read(text)
        problems = Problems()
        for name in value.keys() - RAGGED:
            problems.unknown(name, RAGGED, within=" ")
        problems.raise_if_any()
        return value

    return replace(declared, read=read)


def _rules() -> SettingType:
    """Return the type of the lazy batching rules."""
    expected = f"a JSON object of {', '.join(field.name for field in fields(Rules))}"
    given = setting_types.document(expected)

    def read(text: str) -> Rules:
        try:
            return Rules(**given.read(text))
        except (TypeError, ValueError) as error:
            hint = "" if str(error) == expected else str(error)
            raise ConfigError([Problem("", text, expected, hint)]) from error

    def write(rules: Rules) -> str:
        return given.write(asdict(rules))

    return SettingType(expected, read, lambda value: isinstance(value, Rules), write)


@dataclass(frozen=True, slots=True)
class HandlerSettings:
    """The settings of one handler process.

    Attributes:
        model_path_given: Whether the model path was configured explicitly.
        batch_max: The function's maximum batch size.
        lazy: Whether the function's batches run stage by stage.
        streams_max: Maximum number of concurrent streams.
    """

    listen: str = variable(
        "handler_listen", setting_types.socket_address(), "127.0.0.1:5000", "where to listen"
    )
    key: str = variable(
        "handler_key",
        _TEXT,
        "",
        "key that each request must present as x-carpool-key; set by the sidecar",
    )
    exit_on_term: bool = variable(
        "handler_exit_on_term",
        setting_types.flag(),
        False,  # noqa: FBT003  the default of a declaration
        "whether SIGTERM ends the process once no request is left",
    )
    body_max_bytes: int = variable(
        "handler_body_max_mib",
        _MEBIBYTES,
        64 * _MIB,
        "largest body of one POST, which may be a whole batch",
    )
    answer_max_bytes: int = variable(
        "handler_answer_max_mib",
        _MEBIBYTES,
        64 * _MIB,
        "largest answer to one POST, which may be a whole batch's",
    )
    function_dir: Path = variable(
        "function_dir", _PATH, Path("function"), "folder of handler.py and model.onnx"
    )
    model_path: Path = variable(
        "model_path", _PATH, Path(), "model file", unset="model.onnx in function_dir"
    )
    model_name: str = variable(
        "model_name",
        _TEXT,
        "",
        "model name that /v2/models accepts; `*`: any name",
        unset="the function's name behind a sidecar that knows it, else any",
    )
    variant: str = variable(
        "model_variant",
        _TEXT,
        "",
        "name of the variant in function_dir/variants to serve",
        unset="model.onnx, or else the most accurate",
    )
    threads: int = variable(
        "handler_threads",
        setting_types.integer("a whole number of at least 1", lambda value: value >= 1),
        0,
        "threads of one run of a model",
        unset="the whole cores of com.carpool.cpu, at least one",
    )
    rules: Rules = variable(
        "handler_lazy_rules",
        _rules(),
        Rules(),
        "rules by which requests join running ones ([lazybatching.md](policies/lazybatching.md))",
    )
    lengths: Mapping[str, object] = variable(
        "model_ragged", _lengths(), {}, "variable lengths", unset="what handler.py declares"
    )
    batch_axis: Mapping[str, object] = variable(
        "model_batch_axis",
        setting_types.document('a JSON object, as in {"x": 1}'),
        {},
        "axis of the batch by input or output, where it is not the first",
        unset="what handler.py declares",
    )
    model_path_given: bool = False
    batch_max: int = 1
    lazy: bool = False
    streams_max: int = _STREAMS

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Read the settings from the environment.

        Raises:
            ConfigError: Lists every unknown ``handler_*`` or ``carpool_*`` name and every invalid
                value.
        """
        problems = Problems()
        function = problems.attempt(lambda: FunctionSettings.from_env(env)) or FunctionSettings()
        read = cls(**setting_spec.read_variables(cls, env, _PREFIX, problems))
        problems.raise_if_any()
        given = read.model_path != Path()
        return replace(
            read,
            model_name="" if read.model_name == _ANY else read.model_name,
            model_path=read.model_path if given else read.function_dir / "model.onnx",
            model_path_given=given,
            # No more than there are whole cores: one thread more only gets in the way.
            threads=read.threads or max(1, int(function.cpu or 1)),
            batch_max=function.batch_max,
            lazy=function.executor == "lazy",
            streams_max=max(_STREAMS, function.streams_max),
        )
