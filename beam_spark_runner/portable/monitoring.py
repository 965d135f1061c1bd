"""Metrics: merges the MonitoringInfos of many bundles, and converts them to MetricResults."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from apache_beam.coders import IterableCoder, StrUtf8Coder, VarIntCoder
from apache_beam.metrics import monitoring_infos
from apache_beam.metrics.cells import (
    BoundedTrieData,
    DistributionData,
    DistributionResult,
    GaugeData,
    GaugeResult,
    HistogramData,
    HistogramResult,
)
from apache_beam.metrics.execution import MetricKey, MetricResult
from apache_beam.metrics.metric import MetricResults, MetricsFilter
from apache_beam.metrics.metricbase import MetricName
from apache_beam.portability.api import metrics_pb2

from beam_spark_runner.core.ids import TransformId

STRING_SET_LIMIT_CHARS = 1_000_000
"""The limit of one merged set of strings, the same as Beam's limit for one bundle."""

METRICS_NAMESPACE = "beam_spark_runner"
PENDING_RESIDUALS = "sdf_pending_residuals"
WATERMARK_HOLD = "sdf_watermark_hold"
INPUT_WATERMARK = "input_watermark"
OUTPUT_WATERMARK = "output_watermark"
DROPPED_DUE_TO_LATENESS = "dropped_due_to_lateness"

_STRINGS = IterableCoder(StrUtf8Coder())

_Key = tuple[str, str, tuple[tuple[str, str], ...]]  # URN, type, sorted labels


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How values of one MonitoringInfo type are read, merged and shown to users."""

    group: str  # key in the answer of ``MetricResults.query``
    decode: Callable[[metrics_pb2.MonitoringInfo], Any]
    combine: Callable[[Any, Any], Any]
    encode: Callable[[Any], bytes]
    to_result: Callable[[Any], Any]


def relabelled(coded_infos: Iterable[bytes], ids: Mapping[str, str]) -> tuple[bytes, ...]:
    """Replace the ids of transforms in metrics.

    Args:
        coded_infos: Serialised MonitoringInfos.
        ids: The new ids by the earlier ones. Metrics of other transforms, and of collections, are
            left out.
    """
    found = []
    for coded in coded_infos:
        info = metrics_pb2.MonitoringInfo.FromString(coded)
        id_ = ids.get(info.labels.get(monitoring_infos.PTRANSFORM_LABEL, ""))
        if id_ is not None:
            info.labels[monitoring_infos.PTRANSFORM_LABEL] = id_
            found.append(info.SerializeToString())
    return tuple(found)


def merge(coded_infos: Iterable[bytes]) -> tuple[bytes, ...]:
    """Reduce the MonitoringInfos of any number of bundles to one for each metric.

    Associative and commutative, so that tasks may merge what reaches them in any order.
    (Only a bounded trie that has exceeded its bound depends on the order: it has other,
    equally valid prefixes.) Of an unknown type, the greatest payload is the result.

    Args:
        coded_infos: Serialised MonitoringInfos.

    Returns:
        Serialised MonitoringInfos, one for each URN, type and labels, in their order.
        Progress is left out, as it is about a bundle that still runs.

    Source: proto MonitoringInfoTypeUrns; Beam Python ``monitoring_infos.consolidate``.
    """
    return tuple(
        info.SerializeToString(deterministic=True)
        for info in _merged(metrics_pb2.MonitoringInfo.FromString(coded) for coded in coded_infos)
    )


def to_metric_results(
    committed: Iterable[bytes],
    attempted: Iterable[bytes] | None = None,
    *,
    step_names: Mapping[TransformId, str],
    user_metrics_only: bool = True,
) -> "PipelineMetrics":
    """Convert MonitoringInfos to the form in which a pipeline's user queries them.

    Args:
        committed: Serialised MonitoringInfos of the bundles whose output was accepted.
        attempted: Those of all bundles, failed ones too; None: only committed ones are known.
        step_names: The full names of transforms, by id. Copies of a transform that share a name
            are merged.
        user_metrics_only: Whether to leave out metrics that the SDK itself counts.
    """
    committed = tuple(committed)
    return PipelineMetrics(
        committed,
        committed if attempted is None else tuple(attempted),
        step_names,
        user_metrics_only,
    )


def residual_gauges(
    transform: str, count: int, hold_us: int, at_ms: int
) -> tuple[metrics_pb2.MonitoringInfo, ...]:
    """Return gauges of the residuals of a splittable DoFn, and of their watermark hold.

    Args:
        transform: The id of the transform.
        count: The number of residuals that have not been processed.
        hold_us: The least of their output watermarks; the gauge is in milliseconds.
        at_ms: The time of the measurement, milliseconds since the Unix epoch.
    """
    return _gauges(transform, {PENDING_RESIDUALS: count, WATERMARK_HOLD: hold_us // 1000}, at_ms)


def watermark_gauges(
    transform: str, input_us: int, output_us: int, at_ms: int
) -> tuple[metrics_pb2.MonitoringInfo, ...]:
    """Return gauges of a step's watermarks, which clients of all SDKs can read.

    Args:
        transform: The id of the transform.
        input_us: The input watermark; the gauge is in milliseconds, as timestamps in Java.
        output_us: The output watermark; likewise.
        at_ms: The time of the measurement, milliseconds since the Unix epoch.
    """
    values = {INPUT_WATERMARK: input_us // 1000, OUTPUT_WATERMARK: output_us // 1000}
    return _gauges(transform, values, at_ms)


def _gauges(
    transform: str, values: Mapping[str, int], at_ms: int
) -> tuple[metrics_pb2.MonitoringInfo, ...]:
    return tuple(
        monitoring_infos.int64_user_gauge(
            METRICS_NAMESPACE, name, GaugeData(value, at_ms / 1000), transform
        )
        for name, value in values.items()
    )


def lateness_counter(transform: str, dropped: int) -> metrics_pb2.MonitoringInfo:
    """Return a counter of the elements that a step has dropped because of lateness.

    Args:
        transform: The id of the transform.
        dropped: See ``LateElements``.

    Source: the counters ``droppedDueToLateness`` and ``StatefulParDoDropped`` of Beam's Java
        runners.
    """
    return monitoring_infos.int64_user_counter(
        METRICS_NAMESPACE, DROPPED_DUE_TO_LATENESS, dropped, transform
    )


def element_counts(coded_infos: Iterable[bytes]) -> Mapping[str, int]:
    """Return the element counts of collections.

    Args:
        coded_infos: Serialised MonitoringInfos.

    Returns:
        The counts by the ids of collections.
    """
    counts: dict[str, int] = {}
    for info in map(metrics_pb2.MonitoringInfo.FromString, coded_infos):
        if info.urn == monitoring_infos.ELEMENT_COUNT_URN:
            collection = info.labels[monitoring_infos.PCOLLECTION_LABEL]
            count = monitoring_infos.extract_counter_value(info)
            counts[collection] = counts.get(collection, 0) + count
    return counts


class PipelineMetrics(MetricResults):  # type: ignore[misc]
    """The value of ``result.metrics()``. Steps have the names that users gave them."""

    def __init__(
        self,
        committed: Iterable[bytes],
        attempted: Iterable[bytes],
        step_names: Mapping[TransformId, str],
        user_metrics_only: bool,
    ) -> None:
        self._coded_committed = tuple(committed)
        committed_values = _values(self._coded_committed, step_names, user_metrics_only)
        attempted_values = _values(attempted, step_names, user_metrics_only)
        groups: dict[str, dict[MetricKey, MetricResult]] = {
            kind.group: {} for kind in _KINDS.values()
        }
        for group, key in {**committed_values, **attempted_values}:
            groups[group][key] = MetricResult(
                key, committed_values.get((group, key)), attempted_values.get((group, key))
            )
        self._groups = groups

    def query(self, filter: MetricsFilter | None = None) -> dict[str, list[MetricResult]]:
        """Select metrics by namespace, name and step.

        Returns:
            Lists under ``MetricResults.COUNTERS``, ``DISTRIBUTIONS``, and so on. A metric
            of which no bundle was committed has ``committed`` None.
        """
        return {
            group: [result for key, result in results.items() if self.matches(filter, key)]
            for group, results in self._groups.items()
        }

    def monitoring_infos(self) -> list[metrics_pb2.MonitoringInfo]:
        """Return all committed MonitoringInfos; their labels are ids of transforms, not names."""
        return [metrics_pb2.MonitoringInfo.FromString(coded) for coded in self._coded_committed]


def _merged(
    infos: Iterable[metrics_pb2.MonitoringInfo],
) -> list[metrics_pb2.MonitoringInfo]:
    values: dict[_Key, Any] = {}
    for info in infos:
        if info.type == monitoring_infos.PROGRESS_TYPE:
            continue
        kind = _KINDS.get(info.type, _UNKNOWN)
        key = (info.urn, info.type, tuple(sorted(info.labels.items())))
        value = kind.decode(info)
        values[key] = kind.combine(values[key], value) if key in values else value
    return [
        metrics_pb2.MonitoringInfo(
            urn=key[0],
            type=key[1],
            labels=dict(key[2]),
            payload=_KINDS.get(key[1], _UNKNOWN).encode(values[key]),
        )
        for key in sorted(values)
    ]


def _values(
    coded_infos: Iterable[bytes],
    step_names: Mapping[TransformId, str],
    user_metrics_only: bool,
) -> dict[tuple[str, MetricKey], Any]:
    infos = []
    for coded in coded_infos:
        info = metrics_pb2.MonitoringInfo.FromString(coded)
        is_user = monitoring_infos.is_user_monitoring_info(info)
        if info.type not in _KINDS or (user_metrics_only and not is_user):
            continue
        step = monitoring_infos.get_step_name(info)
        if step is not None:
            info.labels[monitoring_infos.PTRANSFORM_LABEL] = step_names.get(step, step)
        infos.append(info)

    values = {}
    for info in _merged(infos):
        namespace, name = monitoring_infos.parse_namespace_and_name(info)
        # A user's metric is identified by step and name; others may differ only in
        # other labels (element counts, by collection).
        is_user = monitoring_infos.is_user_monitoring_info(info)
        key = MetricKey(
            monitoring_infos.get_step_name(info),
            MetricName(namespace, name),
            None if is_user else dict(info.labels),
        )
        kind = _KINDS[info.type]
        values[kind.group, key] = kind.to_result(kind.decode(info))
    return values


def _wrapped(value: int) -> int:
    """Return a sum modulo 2^64, as a signed number: Beam's counters have 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


def _encode_distribution(data: DistributionData) -> bytes:
    wrapped = DistributionData(_wrapped(data.sum), data.count, data.min, data.max)
    coded: bytes = monitoring_infos.int64_distribution("", wrapped).payload
    return coded


def _decode_gauge(info: metrics_pb2.MonitoringInfo) -> tuple[float, int, bytes]:
    seconds, value = monitoring_infos.extract_gauge_value(info)
    return seconds, value, info.payload  # in this order, max() is the latest


def _union(some: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    """Unite two sets; beyond the limit, keep the first strings in order, which is associative."""
    union = some | others
    if sum(map(len, union)) <= STRING_SET_LIMIT_CHARS:
        return union
    ordered = sorted(union)
    ends = accumulate(map(len, ordered))
    return frozenset(
        text for text, end in zip(ordered, ends, strict=True) if end <= STRING_SET_LIMIT_CHARS
    )


def _decode_trie(info: metrics_pb2.MonitoringInfo) -> tuple[int, BoundedTrieData]:
    bound = metrics_pb2.BoundedTrie.FromString(info.payload).bound
    return bound, monitoring_infos.extract_bounded_trie_value(info)


def _combine_tries(
    some: tuple[int, BoundedTrieData], others: tuple[int, BoundedTrieData]
) -> tuple[int, BoundedTrieData]:
    bound = min(some[0], others[0])
    # Beam's combine() trims to the lesser bound, but its result forgets that bound.
    return bound, BoundedTrieData(root=some[1].combine(others[1]).as_trie(), bound=bound)


def _encode_trie(value: tuple[int, BoundedTrieData]) -> bytes:
    coded: bytes = value[1].to_proto().SerializeToString(deterministic=True)
    return coded


def _encode_histogram(data: HistogramData) -> bytes:
    coded: bytes = data.to_proto().SerializeToString(deterministic=True)
    return coded


_KINDS: Mapping[str, _Kind] = {
    monitoring_infos.SUM_INT64_TYPE: _Kind(
        group=MetricResults.COUNTERS,
        decode=monitoring_infos.extract_counter_value,
        combine=lambda some, other: _wrapped(some + other),
        encode=VarIntCoder().encode,
        to_result=lambda value: value,
    ),
    monitoring_infos.DISTRIBUTION_INT64_TYPE: _Kind(
        group=MetricResults.DISTRIBUTIONS,
        decode=lambda info: monitoring_infos.extract_metric_result_map_value(info).data,
        combine=lambda some, other: some.combine(other),
        encode=_encode_distribution,
        to_result=DistributionResult,
    ),
    monitoring_infos.LATEST_INT64_TYPE: _Kind(
        group=MetricResults.GAUGES,
        decode=_decode_gauge,
        combine=max,
        encode=lambda value: value[2],
        to_result=lambda value: GaugeResult(GaugeData(value[1], value[0])),
    ),
    monitoring_infos.STRING_SET_TYPE: _Kind(
        group=MetricResults.STRINGSETS,
        decode=lambda info: frozenset(monitoring_infos.extract_string_set_value(info)),
        combine=_union,
        encode=lambda value: _STRINGS.encode(sorted(value)),
        to_result=set,
    ),
    monitoring_infos.BOUNDED_TRIE_TYPE: _Kind(
        group=MetricResults.BOUNDED_TRIES,
        decode=_decode_trie,
        combine=_combine_tries,
        encode=_encode_trie,
        to_result=lambda value: value[1],
    ),
    monitoring_infos.HISTOGRAM_TYPE: _Kind(
        group=MetricResults.HISTOGRAMS,
        decode=monitoring_infos.extract_histogram_value,
        combine=lambda some, other: some.combine(other),
        encode=_encode_histogram,
        to_result=HistogramResult,
    ),
}

_UNKNOWN = _Kind(
    group="",
    decode=lambda info: info.payload,
    combine=max,
    encode=lambda payload: payload,
    to_result=lambda payload: payload,
)
