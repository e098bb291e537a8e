"""Prometheus metrics: histograms counted by plain additions, and text that is made when scraped.

Not by ``prometheus_client``, as that loads an HTTP server and an HTTP client: with them, a sidecar
would need a tenth more time to start and 2 to 4 MB more memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = [
    "CONTENT_TYPE",
    "Collector",
    "Family",
    "Histogram",
    "Sample",
    "counter",
    "gauge",
    "histogram",
    "render",
]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_UNLIKE_PYTHON = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}
_QUOTED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_UNQUOTED = str.maketrans({"\\": r"\\", "\n": r"\n"})

_T = TypeVar("_T")


class Sample(NamedTuple):
    """One line: its name, the values of its labels by their names, and its value."""

    name: str
    labels: Mapping[str, str]
    value: float


class Family(NamedTuple):
    """A metric with all its samples.

    Attributes:
        name: Its name, as its samples and its help have it.
        type: ``counter``, ``gauge`` or ``histogram``.
        documentation: What it measures.
        labels: Names of the labels that every sample has.
        samples: Its samples, in their order.
    """

    name: str
    type: str
    documentation: str
    labels: Sequence[str]
    samples: Sequence[Sample]


class Collector(Protocol):
    """Makes metric families when scraped."""

    def collect(self) -> Iterable[Family]:
        """Yield the families."""


class Histogram:
    """Counts by bucket; ``bounds`` are inclusive upper bounds."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def observe_all(self, values: Sequence[float]) -> None:
        """Count several values."""
        bounds, counts = self._bounds, self._counts
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self._sum += sum(values)

    @property
    def count(self) -> int:
        """Return the number of values."""
        return sum(self._counts)

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        """Return Prometheus's form: the count up to each bound, and the sum."""
        total, buckets = 0, []
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((str(bound), float(total)))
        return buckets, self._sum


def counter(name: str, text: str, values: float | Mapping[Any, float], *labels: str) -> Family:
    """Return the family of a counter.

    Args:
        name: Its name, without ``_total``.
        text: What it counts.
        values: Its value. With labels, its values by the value of the label, or by a tuple of them.
        labels: Names of the labels.
    """
    return _plain(f"{name}_total", "counter", text, values, labels)


def gauge(name: str, text: str, values: float | Mapping[Any, float], *labels: str) -> Family:
    """Return the family of a gauge; the arguments are as for `counter`."""
    return _plain(name, "gauge", text, values, labels)


def histogram(
    name: str, text: str, values: Histogram | Mapping[Any, Histogram], *labels: str
) -> Family:
    """Return the family of a histogram; the arguments are as for `counter`."""
    samples = []
    for own, value in _labelled(values, labels):
        buckets, total = value.cumulative()
        samples += [Sample(f"{name}_bucket", {**own, "le": le}, count) for le, count in buckets]
        samples += [Sample(f"{name}_count", own, buckets[-1][1]), Sample(f"{name}_sum", own, total)]
    return Family(name, "histogram", text, labels, samples)


def render(families: Iterable[Family]) -> bytes:
    """Return families in Prometheus's text format, version 0.0.4."""
    return "".join(line for family in families for line in _lines(family)).encode()


def _plain(
    name: str,
    kind: str,
    text: str,
    values: float | Mapping[Any, float],
    labels: Sequence[str],
) -> Family:
    samples = [Sample(name, own, value) for own, value in _labelled(values, labels)]
    return Family(name, kind, text, labels, samples)


def _labelled(
    values: _T | Mapping[Any, _T], names: Sequence[str]
) -> Iterator[tuple[dict[str, str], _T]]:
    """Yield values with their labels, in the order of the labels' values."""
    if not isinstance(values, Mapping):
        yield {}, values
        return
    for key in sorted(values):
        of_labels = key if isinstance(key, tuple) else (key,)
        yield dict(zip(names, map(str, of_labels), strict=True)), values[key]


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.documentation.translate(_UNQUOTED)}\n"
    yield f"# TYPE {family.name} {family.type}\n"
    for name, labels, value in family.samples:
        pairs = [f'{label}="{labels[label].translate(_QUOTED)}"' for label in sorted(labels)]
        number = repr(float(value))
        shown = _UNLIKE_PYTHON.get(number, number)
        yield f"{name}{{{','.join(pairs)}}} {shown}\n" if pairs else f"{name} {shown}\n"
