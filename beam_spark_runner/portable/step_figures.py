"""What steps have done, from the metrics that SDKs count by themselves."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from apache_beam.metrics import monitoring_infos
from apache_beam.portability.api import metrics_pb2
from google.protobuf.message import DecodeError

from beam_spark_runner.portable.bounded import MalformedBytesError
from beam_spark_runner.portable.metric_values import counter_value, value_of

_SAMPLED_SIZE = "beam:metric:sampled_byte_size:v1"
_BUSY = "beam:metric:ptransform_execution_time:total_msecs:v1"


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a pipeline.

    Attributes:
        elements: The number of elements, by the id of their collection.
        bytes_each: The mean size of an element in bytes, of those that were sampled, likewise.
        busy_ms: The time in which code ran, in milliseconds, by the id of the transform.
    """

    elements: dict[str, int] = field(default_factory=dict)
    bytes_each: dict[str, float] = field(default_factory=dict)
    busy_ms: dict[str, int] = field(default_factory=dict)


def figures_in(coded_infos: Iterable[bytes]) -> Figures:
    """Add the figures of serialised MonitoringInfos.

    Metrics that cannot be decoded are left out: ``monitoring.merge`` has warned of them.
    """
    found = Figures()
    sizes: dict[str, tuple[int, int]] = {}
    for coded in coded_infos:
        try:
            info = metrics_pb2.MonitoringInfo.FromString(coded)
            collection = info.labels.get(monitoring_infos.PCOLLECTION_LABEL, "")
            transform = info.labels.get(monitoring_infos.PTRANSFORM_LABEL, "")
            if info.urn == monitoring_infos.ELEMENT_COUNT_URN:
                _add(found.elements, collection, counter_value(info))
            elif info.urn == _BUSY:
                _add(found.busy_ms, transform, counter_value(info))
            elif info.urn == _SAMPLED_SIZE:
                sampled = value_of(info)
                count, total = sizes.get(collection, (0, 0))
                sizes[collection] = count + sampled.count, total + sampled.sum
        except (DecodeError, MalformedBytesError):
            continue
    found.bytes_each.update({id_: total / count for id_, (count, total) in sizes.items() if count})
    return found


def without_counts_of(collection: str, coded_infos: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return serialised MonitoringInfos without those of the elements of a collection."""
    return tuple(coded for coded in coded_infos if not _counts(collection, coded))


def _counts(collection: str, coded: bytes) -> bool:
    try:
        info = metrics_pb2.MonitoringInfo.FromString(coded)
    except DecodeError:  # ``monitoring.merge`` warns of it
        return False
    return (
        info.urn in (monitoring_infos.ELEMENT_COUNT_URN, _SAMPLED_SIZE)
        and info.labels.get(monitoring_infos.PCOLLECTION_LABEL) == collection
    )


def _add(counts: dict[str, int], key: str, number: int) -> None:
    counts[key] = counts.get(key, 0) + number
