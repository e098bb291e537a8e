"""The flags of ``carpool load``, read strictly: every problem is reported in one go."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from carpool import setting_types
from carpool.errors import ConfigError
from carpool.setting_spec import read_value
from carpool.validation.problems import Problems, nearest
from faas_stack.load import arrivals
from faas_stack.load.generator import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from faas_stack.load.arrivals import Segment

__all__ = ["LoadPlan", "content_type_of", "parse"]

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_DURATION = "a duration such as 30s, 200ms or 1m30s"
_TIME = setting_types.duration(_DURATION, lambda v: v > 0)
_WARMUP = setting_types.duration(_DURATION, lambda v: v >= 0)
_RATE = setting_types.decimal("requests per second, above 0", lambda v: v > 0)
_SCALE = setting_types.decimal("a number above 0", lambda v: v > 0)
_CONNECTIONS = setting_types.decimal("a whole number above 0", lambda v: v > 0)


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Plan of one run.

    Attributes:
        warmup_s: First part of the segments, sent but not counted.
        span_s: When to stop sending, including warm-up.
    """

    url: str
    target: Target
    segments: list[Segment]
    arrivals: str
    seed: int
    warmup_s: float
    span_s: float
    slo_s: float | None
    as_json: bool


def parse(argv: Sequence[str]) -> LoadPlan:
    """Return the plan that the flags describe.

    Raises:
        ConfigError: If a flag is invalid.
    """
    flags = _parser().parse_args(argv)
    problems = Problems()
    warmup_s = read_value(_WARMUP, "--warmup", flags.warmup, problems) or 0.0
    slo_s = read_value(_TIME, "--slo", flags.slo, problems)
    timeout_s = read_value(_TIME, "--timeout", flags.timeout, problems) or math.inf
    segments, span_s = _segments(problems, flags, warmup_s)
    target = _target(problems, flags, timeout_s)
    problems.raise_if_any()
    return LoadPlan(
        url=flags.url,
        target=target,
        segments=segments,
        arrivals=flags.arrivals,
        seed=flags.seed,
        warmup_s=warmup_s,
        span_s=span_s,
        slo_s=slo_s,
        as_json=flags.json,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="carpool load",
        allow_abbrev=False,
        description="Send requests at the times of an arrival process, regardless of how slow the"
        " responses are (open loop), and print latency quantiles counted from those times.",
    )
    add = parser.add_argument
    add("--url", required=True, help="address of the function: http://HOST:PORT/function/NAME")
    add("--rate", help="mean rate in requests per second")
    add(
        "--trace",
        metavar="CSV",
        help="replay the rates of a CSV file with start_s,requests_per_minute",
    )
    add("--scale", default="1", help="multiply the rates of --trace (default: 1)")
    add("--duration", help="how long to send, such as 30s (with --trace: the length of the trace)")
    add("--warmup", default="0", help="first send for this long without counting (default: 0)")
    add(
        "--arrivals",
        choices=arrivals.KINDS,
        default="poisson",
        help="arrival process (default: poisson)",
    )
    add("--seed", type=int, default=1, help="seed of the arrival process (default: 1)")
    add("--slo", help="latency objective, e.g. 200ms; requests that miss it are counted")
    add("--data", default="", help="body: text, @FILE, or @FOLDER (its files in turn)")
    add("--method", help="HTTP method (default: POST with --data, otherwise GET)")
    add(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="request header; may be repeated",
    )
    add(
        "--content-type",
        help="content type (default: application/json if the body looks like JSON, else raw bytes)",
    )
    add("--connections", default="512", help="maximum number of connections (default: 512)")
    add(
        "--timeout",
        default="30s",
        help="time after which an unanswered request counts as failed (default: 30s)",
    )
    add("--json", action="store_true", help="print one JSON object")
    return parser


def _segments(
    problems: Problems, flags: argparse.Namespace, warmup_s: float
) -> tuple[list[Segment], float]:
    duration_s = read_value(_TIME, "--duration", flags.duration, problems)
    if (flags.rate is None) == (flags.trace is None):
        if flags.rate is None:
            problems.missing("--rate", "requests per second, or --trace with a CSV file of rates")
        else:
            problems.add("--rate, --trace", "both", "only one of the two")
        return [], 0.0
    if flags.rate is not None:
        rate_rps = read_value(_RATE, "--rate", flags.rate, problems) or 1.0
        if flags.duration is None:
            problems.missing("--duration", _TIME.expected)
        span_s = warmup_s + (duration_s or 0.0)
        return arrivals.constant(rate_rps, span_s), span_s
    scale = read_value(_SCALE, "--scale", flags.scale, problems) or 1.0
    try:
        segments = arrivals.of_trace(Path(flags.trace), scale)
    except ConfigError as error:
        problems.extend("--trace: ", error)
        return [], 0.0
    whole_s = segments[-1].end_s
    return segments, min(whole_s, warmup_s + (duration_s or whole_s))


def _target(problems: Problems, flags: argparse.Namespace, timeout_s: float) -> Target:
    expected = "http://HOST:PORT/PATH"
    host, port, path = "", 0, "/"
    try:
        url = urlsplit(flags.url)
        host, port = url.hostname or "", url.port or 80
        path = (url.path or "/") + (f"?{url.query}" if url.query else "")
        if url.scheme != "http" or not host or not flags.url.isascii() or " " in flags.url:
            problems.add("--url", flags.url, expected)
    except ValueError as error:
        problems.add("--url", flags.url, expected, str(error))
    method = (flags.method or ("POST" if flags.data else "GET")).upper()
    if method not in _METHODS:
        problems.add("--method", method, f"one of {', '.join(_METHODS)}", nearest(method, _METHODS))
    bodies = _bodies(problems, flags.data)
    extra = []
    for header in flags.header:
        name, colon, value = header.partition(":")
        if not colon or not name.strip().isascii() or not header.isprintable():
            problems.add("--header", header, "'NAME: VALUE'")
        extra.append(f"{name.strip()}: {value.strip()}\r\n")
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    head = f"{method} {path} HTTP/1.1\r\nhost: {name}\r\nx-carpool-explain: 1\r\n{''.join(extra)}"
    requests = []
    for guessed_type, body in bodies:
        content_type = flags.content_type or guessed_type
        whole = f"{head}content-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
        requests.append(whole.encode("latin-1", "replace") + body)
    limit = read_value(_CONNECTIONS, "--connections", flags.connections, problems) or 1.0
    return Target(host, port, requests, max(1, int(limit)), timeout_s)


def _bodies(problems: Problems, data: str) -> list[tuple[str, bytes]]:
    """Return each body with the content type inferred from its name or its first character."""
    if not data.startswith("@"):
        content_type = "application/json" if data[:1] in ("{", "[") else "application/octet-stream"
        return [(content_type, data.encode())]
    path = Path(data[1:])
    try:
        files = sorted(f for f in path.iterdir() if f.is_file()) if path.is_dir() else [path]
        bodies = [(content_type_of(file), file.read_bytes()) for file in files]
    except OSError as error:
        problems.add("--data", data, "a readable file or folder after the @", str(error))
        return []
    if not bodies:
        problems.add("--data", data, "a folder with at least one file")
    return bodies


def content_type_of(file: Path) -> str:
    """Return the content type for a file's bytes, inferred from its name."""
    return "application/json" if file.suffix == ".json" else "application/octet-stream"
