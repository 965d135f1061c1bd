"""Metrics: merges the MonitoringInfos of many bundles, and converts them to MetricResults."""

import logging
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from apache_beam.metrics import monitoring_infos
from apache_beam.metrics.cells import GaugeData
from apache_beam.metrics.execution import MetricKey, MetricResult
from apache_beam.metrics.metric import MetricResults, MetricsFilter
from apache_beam.metrics.metricbase import MetricName
from apache_beam.portability.api import metrics_pb2
from google.protobuf.message import DecodeError

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.portable.bounded import MalformedBytesError
from beam_spark_runner.portable.metric_values import KINDS, counter_value, kind_of, value_of

_LOGGER = logging.getLogger(__name__)
_TEXT = reprlib.Repr()
_TEXT.maxstring = 300

METRICS_NAMESPACE = "beam_spark_runner"
PENDING_RESIDUALS = "sdf_pending_residuals"
WATERMARK_HOLD = "sdf_watermark_hold"
INPUT_WATERMARK = "input_watermark"
OUTPUT_WATERMARK = "output_watermark"
DROPPED_DUE_TO_LATENESS = "dropped_due_to_lateness"
DROPPED_BY_DRAIN = "timers_dropped_by_drain"

MAX_METRICS = 100_000
"""How many metrics are kept for one job; the others are dropped."""
MAX_METRICS_BYTES = 64 << 20
"""How large all metrics of a job together may be, encoded."""

_Key = tuple[str, str, tuple[tuple[str, str], ...]]  # URN, type, sorted labels
Dropped: TypeAlias = Callable[[metrics_pb2.MonitoringInfo, str], None]
"""Is called with a metric that is dropped, and the problem."""


def name_of(info: metrics_pb2.MonitoringInfo) -> str:
    """Return the name of a metric, with its step, for messages."""
    namespace, name = (
        info.labels.get(label, "")
        for label in (monitoring_infos.NAMESPACE_LABEL, monitoring_infos.NAME_LABEL)
    )
    step = info.labels.get(monitoring_infos.PTRANSFORM_LABEL, "")
    full_name = f"{namespace}:{name}" if name else info.urn
    return _TEXT.repr(f"{full_name} of {step}" if step else full_name)


def warn_of_dropped(info: metrics_pb2.MonitoringInfo, problem: str) -> None:
    """Log that a metric is dropped."""
    _LOGGER.warning("the metric %s is dropped: %s", name_of(info), problem)


def relabelled(coded_infos: Iterable[bytes], ids: Mapping[str, str]) -> tuple[bytes, ...]:
    """Replace the ids of transforms in metrics.

    Args:
        coded_infos: Serialised MonitoringInfos.
        ids: The new ids by the earlier ones. Metrics of other transforms, and of collections, are
            left out.
    """
    result = []
    for info in _parsed(coded_infos):
        id_ = ids.get(info.labels.get(monitoring_infos.PTRANSFORM_LABEL, ""))
        if id_ is not None:
            info.labels[monitoring_infos.PTRANSFORM_LABEL] = id_
            result.append(info.SerializeToString())
    return tuple(result)


def merge(coded_infos: Iterable[bytes], dropped: Dropped = warn_of_dropped) -> tuple[bytes, ...]:
    """Reduce the MonitoringInfos of any number of bundles to one for each metric.

    Associative and commutative, so that tasks may merge what reaches them in any order.
    (Only a bounded trie that has exceeded its bound depends on the order: it has other,
    equally valid prefixes.) Of an unknown type, the greatest payload is the result.

    It never fails: metrics whose values cannot be decoded, or do not fit to another one of the
    same name, and those beyond ``MAX_METRICS`` or ``MAX_METRICS_BYTES``, are dropped.

    Args:
        coded_infos: Serialised MonitoringInfos.
        dropped: Is called for each metric that is dropped.

    Returns:
        Serialised MonitoringInfos, one for each URN, type and labels, in their order.
        Progress is left out, as it is about a bundle that still runs.

    Source: proto MonitoringInfoTypeUrns; Beam Python ``monitoring_infos.consolidate``.
    """
    result = []
    room = MAX_METRICS_BYTES
    for info in _merged(_parsed(coded_infos), dropped):
        coded = info.SerializeToString(deterministic=True)
        room -= len(coded)
        if room < 0:
            dropped(info, f"all metrics together have more than {MAX_METRICS_BYTES} bytes")
            room += len(coded)
        else:
            result.append(coded)
    return tuple(result)


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


def drained_timers_counter(transform: str, dropped: int) -> metrics_pb2.MonitoringInfo:
    """Return a counter of the processing-time timers of a step that a drain has dropped.

    Args:
        transform: The id of the transform.
        dropped: See ``DroppedTimers``.
    """
    return monitoring_infos.int64_user_counter(
        METRICS_NAMESPACE, DROPPED_BY_DRAIN, dropped, transform
    )


def element_counts(coded_infos: Iterable[bytes]) -> Mapping[str, int]:
    """Return the element counts of collections.

    Args:
        coded_infos: Serialised MonitoringInfos.

    Returns:
        The counts by the ids of collections.
    """
    counts: dict[str, int] = {}
    for info in _parsed(coded_infos):
        if info.urn == monitoring_infos.ELEMENT_COUNT_URN:
            collection = info.labels[monitoring_infos.PCOLLECTION_LABEL]
            try:
                counts[collection] = counts.get(collection, 0) + counter_value(info)
            except MalformedBytesError as error:
                warn_of_dropped(info, str(error))
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
            kind.group: {} for kind in KINDS.values()
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


def _parsed(coded_infos: Iterable[bytes]) -> Iterator[metrics_pb2.MonitoringInfo]:
    for coded in coded_infos:
        try:
            yield metrics_pb2.MonitoringInfo.FromString(coded)
        except DecodeError:
            _LOGGER.warning("%d bytes are dropped, which are no metric", len(coded))


def _merged(
    infos: Iterable[metrics_pb2.MonitoringInfo], dropped: Dropped
) -> list[metrics_pb2.MonitoringInfo]:
    values: dict[_Key, Any] = {}
    for info in infos:
        if info.type == monitoring_infos.PROGRESS_TYPE:
            continue
        key = (info.urn, info.type, tuple(sorted(info.labels.items())))
        try:
            if key in values:  # so that its name was checked
                kind = kind_of(key[1])
                values[key] = kind.combine(values[key], kind.decode(info.payload))
            elif len(values) < MAX_METRICS:
                values[key] = value_of(info)
            else:
                dropped(info, f"there are more than {MAX_METRICS} metrics")
        except MalformedBytesError as error:
            dropped(info, str(error))
    return [
        metrics_pb2.MonitoringInfo(
            urn=key[0],
            type=key[1],
            labels=dict(key[2]),
            payload=kind_of(key[1]).encode(values[key]),
        )
        for key in sorted(values)
    ]


def _values(
    coded_infos: Iterable[bytes],
    step_names: Mapping[TransformId, str],
    user_metrics_only: bool,
) -> dict[tuple[str, MetricKey], Any]:
    infos = []
    for info in _parsed(coded_infos):
        is_user = monitoring_infos.is_user_monitoring_info(info)
        if info.type not in KINDS or (user_metrics_only and not is_user):
            continue
        step = monitoring_infos.get_step_name(info)
        if step is not None:
            info.labels[monitoring_infos.PTRANSFORM_LABEL] = step_names.get(step, step)
        infos.append(info)

    values = {}
    for info in _merged(infos, warn_of_dropped):
        namespace, name = monitoring_infos.parse_namespace_and_name(info)
        # A user's metric is identified by step and name; others may differ only in
        # other labels (element counts, by collection).
        is_user = monitoring_infos.is_user_monitoring_info(info)
        key = MetricKey(
            monitoring_infos.get_step_name(info),
            MetricName(namespace, name),
            None if is_user else dict(info.labels),
        )
        kind = KINDS[info.type]
        values[kind.group, key] = kind.to_result(value_of(info))
    return values
