"""Beam's metrics of users as Prometheus metric families: all six kinds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from apache_beam.metrics.cells import HistogramData
from apache_beam.metrics.metric import MetricResults
from prometheus_client import Metric
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)

JOB = ("job_name", "job_id")
_LABELS = (*JOB, "step", "namespace", "name")
MAX_MEMBERS = 100
"""The most strings of one set that are served: each is a time series."""
_MAX_CHARS = 200


class UsersMetrics(NamedTuple):
    """The metrics of one job, and the labels that name it.

    Attributes:
        labels: The values of ``JOB``.
        metrics: The metrics of users, as ``MetricResults.query`` returns them.
    """

    labels: tuple[str, str]
    metrics: Mapping[str, Sequence[Any]]


def of_users(jobs: Iterable[UsersMetrics]) -> Iterator[Metric]:
    """Yield the metrics of users of some jobs."""
    jobs = list(jobs)
    yield from _numbers(jobs)
    yield from _sets(jobs)
    yield _histograms(jobs)


def _numbers(jobs: Sequence[UsersMetrics]) -> Iterator[Metric]:
    counters = CounterMetricFamily("beam_user_counter", "Beam's counters.", labels=_LABELS)
    gauges = GaugeMetricFamily("beam_user_gauge", "Beam's gauges.", labels=_LABELS)
    distributions = SummaryMetricFamily(
        "beam_user_distribution", "Beam's distributions.", labels=_LABELS
    )
    minima, maxima = (
        GaugeMetricFamily(
            f"beam_user_distribution_{bound}", f"The {bound} of a distribution.", labels=_LABELS
        )
        for bound in ("min", "max")
    )
    for job in jobs:
        for labels, value in _values(job, MetricResults.COUNTERS):
            counters.add_metric(labels, value)
        for labels, value in _values(job, MetricResults.GAUGES):
            gauges.add_metric(labels, value.value)
        for labels, value in _values(job, MetricResults.DISTRIBUTIONS):
            distributions.add_metric(labels, count_value=value.count, sum_value=value.sum)
            if value.count:
                minima.add_metric(labels, value.min)
                maxima.add_metric(labels, value.max)
    yield from (counters, gauges, distributions, minima, maxima)


def _sets(jobs: Sequence[UsersMetrics]) -> Iterator[Metric]:
    size = GaugeMetricFamily(
        "beam_user_string_set_size", "How many strings a set has.", labels=_LABELS
    )
    members = GaugeMetricFamily(
        "beam_user_string_set_member", "1 for each string of a set.", labels=(*_LABELS, "value")
    )
    tries = GaugeMetricFamily(
        "beam_user_bounded_trie_size", "How many paths a bounded trie has.", labels=_LABELS
    )
    for job in jobs:
        for labels, strings in _values(job, MetricResults.STRINGSETS):
            size.add_metric(labels, len(strings))
            # Cut strings may be equal, and series must not be.
            cut = sorted({text[:_MAX_CHARS] for text in strings})
            for text in cut[:MAX_MEMBERS]:
                members.add_metric((*labels, text), 1)
        for labels, trie in _values(job, MetricResults.BOUNDED_TRIES):
            tries.add_metric(labels, trie.size())
    yield from (size, members, tries)


def _histograms(jobs: Sequence[UsersMetrics]) -> Metric:
    histograms = HistogramMetricFamily(
        "beam_user_histogram", "Beam's histograms, which have no sum.", labels=_LABELS
    )
    for job in jobs:
        for labels, result in _values(job, MetricResults.HISTOGRAMS):
            histograms.add_metric(labels, _buckets(result.data), sum_value=None)
    return histograms


def _buckets(data: HistogramData) -> list[tuple[str, float]]:
    """Return upper bounds and cumulative counts, as Prometheus has them.

    Beam does not say whether a value that is in none of its buckets was above or below them.
    """
    proto = data.to_proto()
    linear = proto.bucket_options.linear
    below = [
        (str(linear.start + (number + 1) * linear.width), float(count))
        for number, count in enumerate(accumulate(proto.bucket_counts))
    ]
    return [*below, ("+Inf", float(proto.count))]


def _values(job: UsersMetrics, group: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for result in job.metrics[group]:
        name = result.key.metric
        step = result.key.step or ""  # an SDK may not say which step counts
        yield (*job.labels, step, name.namespace, name.name), result.result
