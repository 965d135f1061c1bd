"""Values of metrics: decoded within the bytes that are there, combined, and shown to users.

SDK harnesses supply the payloads, whose sizes and counts are limited here before anything is
allocated: a histogram of a few bytes may announce 2^31 buckets.

Source: proto ``MonitoringInfoTypeUrns``; Beam Python ``metrics.monitoring_infos``.
"""

import math
from collections.abc import Callable, Mapping
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
from apache_beam.metrics.metric import MetricResults
from apache_beam.portability.api import metrics_pb2
from google.protobuf.message import DecodeError, Message

from beam_spark_runner.portable.bounded import BoundedReader, MalformedBytesError, read_varint_at

STRING_SET_LIMIT_CHARS = 1_000_000
"""The limit of one merged set of strings, the same as Beam's limit for one bundle."""
_MAX_BYTES = 8 << 20  # of one metric
_MAX_BUCKETS = 10_000
_MAX_LEAVES = 2_000
"""SDKs bound tries to 100. Trimming larger ones takes time that is quadratic in their leaves."""
_BEAMS_BOUND = 100
_DEEPEST_TRIE = 40
"""Protobuf reads at most 100 nested messages, of which each level of a trie takes two."""
_MAX_INT64 = 2**63 - 1

_STRINGS = IterableCoder(StrUtf8Coder())


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricKind:
    """How values of one MonitoringInfo type are read, merged and shown to users.

    Attributes:
        group: The key in the answer of ``MetricResults.query``.
        decode: Decodes a payload. Raises MalformedBytesError.
        combine: Merges two values. Raises MalformedBytesError if they do not fit together.
        encode: Encodes a value as a payload.
        to_result: Converts a value to what users see.
    """

    group: str
    decode: Callable[[bytes], Any]
    combine: Callable[[Any, Any], Any]
    encode: Callable[[Any], bytes]
    to_result: Callable[[Any], Any]


def kind_of(type_urn: str) -> MetricKind:
    """Return the kind of a MonitoringInfo type; of an unknown one, the greatest payload counts."""
    return KINDS.get(type_urn, _UNKNOWN)


def value_of(info: metrics_pb2.MonitoringInfo) -> Any:
    """Decode the value of a metric, as its kind does.

    Raises:
        MalformedBytesError: The payload is no value of the metric's type, the metric has no name,
            or it is too large.
    """
    size = info.ByteSize()
    if size > _MAX_BYTES:
        raise MalformedBytesError(f"it has {size} bytes")
    kind = kind_of(info.type)
    if kind is not _UNKNOWN:
        _check_name(info)
    return kind.decode(info.payload)


def _check_name(info: metrics_pb2.MonitoringInfo) -> None:
    """Check that Beam can make a MetricName of the metric."""
    if monitoring_infos.is_user_monitoring_info(info):
        for label in (monitoring_infos.NAMESPACE_LABEL, monitoring_infos.NAME_LABEL):
            if not info.labels.get(label):
                raise MalformedBytesError(f"it has no {label}")
        return
    namespace, _, name = info.urn.partition(":")
    if not namespace or not name:
        raise MalformedBytesError("its URN has no namespace, or no name")


def counter_value(info: metrics_pb2.MonitoringInfo) -> int:
    """Decode the value of a metric that is a sum of integers.

    Raises:
        MalformedBytesError: It is of another type, or malformed.
    """
    if info.type != monitoring_infos.SUM_INT64_TYPE:
        raise MalformedBytesError(f"it has the type {info.type!r}, which is no sum of integers")
    return _integer(info.payload)


def _integers(payload: bytes, count: int) -> list[int]:
    """Decode so many signed varints. Not with ``BoundedReader``: most metrics are such numbers."""
    numbers = []
    position = 0
    try:
        for _ in range(count):
            number, position = read_varint_at(payload, position)
            numbers.append(number - (1 << 64) if number > _MAX_INT64 else number)
    except IndexError as error:
        raise MalformedBytesError(f"it is cut off after {len(numbers)} numbers") from error
    if position != len(payload):
        raise MalformedBytesError(f"{len(payload) - position} more bytes than expected")
    return numbers


def _integer(payload: bytes) -> int:
    (value,) = _integers(payload, 1)
    return value


def _wrapped(value: int) -> int:
    """Return a sum modulo 2^64, as a signed number: Beam's counters have 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


def _decode_distribution(payload: bytes) -> DistributionData:
    count, total, least, most = _integers(payload, 4)
    if count < 0 or (count and least > most):
        raise MalformedBytesError(f"{count} values are from {least} to {most}")
    return DistributionData(total, count, least, most)


def _combine_distributions(some: DistributionData, other: DistributionData) -> DistributionData:
    """Merge two distributions. Beam's ``combine`` refuses sums and counts of more than 64 bits."""
    return DistributionData(
        _wrapped(some.sum + other.sum),
        min(some.count + other.count, _MAX_INT64),
        min(some.min, other.min),
        max(some.max, other.max),
    )


def _encode_distribution(data: DistributionData) -> bytes:
    coded: bytes = monitoring_infos.int64_distribution("", data).payload
    return coded


def _decode_gauge(payload: bytes) -> tuple[float, int, bytes]:
    time_ms, value = _integers(payload, 2)
    return time_ms / 1000, value, payload  # in this order, max() is the latest


def _decode_strings(payload: bytes) -> frozenset[str]:
    reader = BoundedReader(payload)
    strings = reader.items(BoundedReader.text)
    reader.end()
    return frozenset(strings)


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


def _parse(kind: type[Message], payload: bytes) -> Any:
    try:
        return kind.FromString(payload)
    except DecodeError as error:
        raise MalformedBytesError(f"{error}") from error


def _decode_trie(payload: bytes) -> tuple[int, BoundedTrieData]:
    proto = _parse(metrics_pb2.BoundedTrie, payload)
    if len(proto.singleton) > _DEEPEST_TRIE:
        raise MalformedBytesError(f"a path of a trie has {len(proto.singleton)} parts")
    if proto.singleton and proto.HasField("root"):
        raise MalformedBytesError("a trie has both a single path and a root")
    if not proto.bound:  # not set
        proto.bound = _BEAMS_BOUND
    if not 0 < proto.bound <= _MAX_LEAVES:
        raise MalformedBytesError(f"a trie is bounded by {proto.bound}, not by {_MAX_LEAVES}")
    trie = BoundedTrieData.from_proto(proto)
    if trie.size() > proto.bound:
        raise MalformedBytesError(f"a trie has {trie.size()} leaves, and the bound {proto.bound}")
    return proto.bound, trie


def _combine_tries(
    some: tuple[int, BoundedTrieData], others: tuple[int, BoundedTrieData]
) -> tuple[int, BoundedTrieData]:
    bound = min(some[0], others[0])
    # Beam's combine() trims to the lesser bound, but its result forgets that bound.
    return bound, BoundedTrieData(root=some[1].combine(others[1]).as_trie(), bound=bound)


def _encode_trie(value: tuple[int, BoundedTrieData]) -> bytes:
    coded: bytes = value[1].to_proto().SerializeToString(deterministic=True)
    return coded


def _decode_histogram(payload: bytes) -> HistogramData:
    proto = _parse(metrics_pb2.HistogramValue, payload)
    linear = proto.bucket_options.linear
    if not proto.bucket_options.HasField("linear"):
        raise MalformedBytesError("the buckets of a histogram are not linear")
    buckets = linear.number_of_buckets
    # In addition to those between the bounds, there may be two for values outside of them.
    if not max(0, len(proto.bucket_counts) - 2) <= buckets <= _MAX_BUCKETS:
        raise MalformedBytesError(
            f"a histogram has {buckets} buckets, {len(proto.bucket_counts)} of them with counts; "
            f"at most {_MAX_BUCKETS} are kept"
        )
    if not (math.isfinite(linear.start) and math.isfinite(linear.width) and linear.width > 0):
        raise MalformedBytesError(
            f"the buckets of a histogram begin at {linear.start}, with the width {linear.width}"
        )
    if any(count < 0 for count in proto.bucket_counts):
        raise MalformedBytesError("a bucket of a histogram has a negative count")
    return _countable(HistogramData.from_proto(proto))


def _countable(data: HistogramData) -> HistogramData:
    if data.histogram.total_count() > _MAX_INT64:
        raise MalformedBytesError("the counts of a histogram have more than 63 bits")
    return data


def _combine_histograms(some: HistogramData, other: HistogramData) -> HistogramData:
    try:
        combined = some.combine(other)
    except RuntimeError as error:  # the only one that Beam raises
        raise MalformedBytesError("two histograms of one name have other buckets") from error
    return _countable(combined)


def _encode_histogram(data: HistogramData) -> bytes:
    proto = data.to_proto()
    coded: bytes = proto.SerializeToString(deterministic=True)
    return coded


KINDS: Mapping[str, MetricKind] = {
    monitoring_infos.SUM_INT64_TYPE: MetricKind(
        group=MetricResults.COUNTERS,
        decode=_integer,
        combine=lambda some, other: _wrapped(some + other),
        encode=VarIntCoder().encode,
        to_result=lambda value: value,
    ),
    monitoring_infos.DISTRIBUTION_INT64_TYPE: MetricKind(
        group=MetricResults.DISTRIBUTIONS,
        decode=_decode_distribution,
        combine=_combine_distributions,
        encode=_encode_distribution,
        to_result=DistributionResult,
    ),
    monitoring_infos.LATEST_INT64_TYPE: MetricKind(
        group=MetricResults.GAUGES,
        decode=_decode_gauge,
        combine=max,
        encode=lambda value: value[2],
        to_result=lambda value: GaugeResult(GaugeData(value[1], value[0])),
    ),
    monitoring_infos.STRING_SET_TYPE: MetricKind(
        group=MetricResults.STRINGSETS,
        decode=_decode_strings,
        combine=_union,
        encode=lambda value: _STRINGS.encode(sorted(value)),
        to_result=set,
    ),
    monitoring_infos.BOUNDED_TRIE_TYPE: MetricKind(
        group=MetricResults.BOUNDED_TRIES,
        decode=_decode_trie,
        combine=_combine_tries,
        encode=_encode_trie,
        to_result=lambda value: value[1],
    ),
    monitoring_infos.HISTOGRAM_TYPE: MetricKind(
        group=MetricResults.HISTOGRAMS,
        decode=_decode_histogram,
        combine=_combine_histograms,
        encode=_encode_histogram,
        to_result=HistogramResult,
    ),
}
"""How the types of metrics are handled that Beam's Python SDK can show to users."""

_UNKNOWN = MetricKind(
    group="",
    decode=lambda payload: payload,
    combine=max,
    encode=lambda payload: payload,
    to_result=lambda payload: payload,
)
