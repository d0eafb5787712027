"""Metrics as values, and the text that Prometheus reads.

The text format is small, and a query needs nothing else of Prometheus' client, which only a server has installed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from headrace.errors import without_secrets

__all__ = ["CONTENT_TYPE", "Family", "MetricSample", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class MetricSample:
    """One value: the end of its name, after that of the family, and the values of its labels."""

    labels: tuple[str, ...]
    value: float
    suffix: str = ""
    #: The upper bound of a bucket, as a text.
    bound: str | None = None


@dataclass
class Family:
    """A metric: its name, its kind, the text that explains it, the names of its labels, and its values."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    samples: list[MetricSample] = field(default_factory=list)

    def add(self, labels: Sequence[str], value: float) -> None:
        """Add a value."""
        self.samples.append(MetricSample(tuple(labels), float(value)))

    def add_histogram(
        self, labels: Sequence[str], bounds: Sequence[float], counts: Sequence[int], total: float
    ) -> None:
        """Add a histogram: the number of observations up to each bound, those beyond the last, and their sum."""
        texts = [*(_number(float(bound)) for bound in bounds), "+Inf"]
        for bound, count in zip(texts, accumulate(counts), strict=True):
            self.samples.append(MetricSample(tuple(labels), float(count), "_bucket", bound))
        self.samples.append(MetricSample(tuple(labels), float(sum(counts)), "_count"))
        self.samples.append(MetricSample(tuple(labels), float(total), "_sum"))

    def lines(self) -> Iterator[str]:
        """Its lines in the text format."""
        yield f"# HELP {self.name} {_escaped(self.text, quotes=False)}"
        yield f"# TYPE {self.name} {self.kind}"
        for sample in self.samples:
            pairs = sorted(zip(self.labels, sample.labels, strict=True))
            pairs += [] if sample.bound is None else [("le", sample.bound)]
            labels = ",".join(f'{name}="{_escaped(without_secrets(value))}"' for name, value in pairs)
            yield f"{self.name}{sample.suffix}{'{' + labels + '}' if labels else ''} {_number(sample.value)}"


def exposition(families: Iterable[Family]) -> bytes:
    """The text for Prometheus. Families of the same name become one: each has one place in the text."""
    together: dict[str, Family] = {}
    for family in families:
        if family.name in together:
            together[family.name].samples.extend(family.samples)
        else:
            together[family.name] = Family(family.name, family.kind, family.text, family.labels, [*family.samples])
    return "".join(f"{line}\n" for family in together.values() for line in family.lines()).encode(errors="replace")


def _escaped(text: str, *, quotes: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
