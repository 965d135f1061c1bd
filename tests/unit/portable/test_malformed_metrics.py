"""Metrics that an SDK got wrong are dropped and named; all others count."""

import struct
from typing import Any

import pytest
from apache_beam.metrics import monitoring_infos as mi
from apache_beam.portability.api import metrics_pb2

from beam_spark_runner.portable import monitoring
from beam_spark_runner.portable.bounded import MalformedBytesError
from beam_spark_runner.portable.metric_values import counter_value
from beam_spark_runner.portable.monitoring import (
    element_counts,
    merge,
    relabelled,
    to_metric_results,
)
from tests.unit.portable.test_monitoring import STEPS, coded, counter, histogram

HUGE = b"\x80\x80\x80\x80\x01"  # 2^28
MAX_INT64 = 2**63 - 1


def trie(**fields: Any) -> bytes:
    return bytes(metrics_pb2.BoundedTrie(**fields).SerializeToString())


def buckets(count: int, counts: tuple[int, ...] = (), **linear: Any) -> bytes:
    options = metrics_pb2.HistogramValue.BucketOptions
    linear = {"width": 1.0, "start": 0.0, **linear}
    return bytes(
        metrics_pb2.HistogramValue(
            bucket_counts=counts,
            bucket_options=options(linear=options.Linear(number_of_buckets=count, **linear)),
        ).SerializeToString()
    )


def wide(leaves: int) -> metrics_pb2.BoundedTrieNode:
    children = {str(number): metrics_pb2.BoundedTrieNode() for number in range(leaves)}
    return metrics_pb2.BoundedTrieNode(children=children)


COUNTER, DISTRIBUTION, GAUGE = mi.SUM_INT64_TYPE, mi.DISTRIBUTION_INT64_TYPE, mi.LATEST_INT64_TYPE
STRINGS, TRIE, HISTOGRAM = mi.STRING_SET_TYPE, mi.BOUNDED_TRIE_TYPE, mi.HISTOGRAM_TYPE
MALFORMED = [
    pytest.param(COUNTER, b"", "cut off", id="no counter"),
    pytest.param(COUNTER, b"\x80", "cut off", id="half a counter"),
    pytest.param(COUNTER, b"\1\1", "more bytes", id="two counters"),
    pytest.param(COUNTER, b"\xff" * 11, "64 bits", id="a counter of eleven bytes"),
    pytest.param(DISTRIBUTION, b"\1\1\1", "cut off", id="three parts of a distribution"),
    pytest.param(DISTRIBUTION, b"\1\1\1\1\1", "more bytes", id="five parts"),
    pytest.param(DISTRIBUTION, b"\1\1\2\1", "from 2 to 1", id="a minimum above the maximum"),
    pytest.param(DISTRIBUTION, b"\xff" * 9 + b"\1\1\1\1", "-1 values", id="-1 values"),
    pytest.param(GAUGE, b"\1", "cut off", id="half a gauge"),
    pytest.param(STRINGS, b"", "4 more bytes", id="no set"),
    pytest.param(STRINGS, b"\0\0\0\1" + HUGE, "268435456 more bytes", id="a string of 2^28 bytes"),
    pytest.param(STRINGS, b"\x40\0\0\0", "1073741824 items", id="2^30 strings"),
    pytest.param(STRINGS, b"\0\0\0\1\1\xff", "UTF-8", id="a string that is no text"),
    pytest.param(TRIE, b"\xff", "pars", id="no trie"),
    pytest.param(TRIE, trie(bound=-1), "bounded by -1", id="a negative bound"),
    pytest.param(TRIE, trie(bound=1 << 30), "bounded by", id="a bound of 2^30"),
    pytest.param(TRIE, trie(bound=9, root=wide(10)), "10 leaves", id="more leaves than its bound"),
    pytest.param(TRIE, trie(bound=9, singleton=["a"] * 50), "50 parts", id="a path too deep"),
    pytest.param(TRIE, trie(singleton=["a"], root=wide(2)), "both", id="a path and a root"),
    pytest.param(HISTOGRAM, b"\xff", "pars", id="no histogram"),
    pytest.param(HISTOGRAM, b"", "not linear", id="without buckets"),
    pytest.param(HISTOGRAM, buckets(2**31 - 1), "2147483647 buckets", id="2^31 - 1 buckets"),
    pytest.param(HISTOGRAM, buckets(-1), "-1 buckets", id="-1 buckets"),
    pytest.param(HISTOGRAM, buckets(1, (1,) * 4), "4 of them", id="more counts than buckets"),
    pytest.param(HISTOGRAM, buckets(1, (-1,)), "negative", id="a negative count"),
    pytest.param(HISTOGRAM, buckets(2, (MAX_INT64, 1)), "63 bits", id="counts that overflow"),
    pytest.param(HISTOGRAM, buckets(1, width=0.0), "width 0", id="buckets without width"),
    pytest.param(HISTOGRAM, buckets(1, start=float("nan")), "nan", id="buckets from nowhere"),
]


def info(type_: str, payload: bytes, urn: str = mi.USER_COUNTER_URN) -> metrics_pb2.MonitoringInfo:
    labels = mi.create_labels(ptransform="t1", namespace="ns", name="odd")
    return mi.create_monitoring_info(urn, type_, payload, labels)


@pytest.mark.parametrize(("type_", "payload", "problem"), MALFORMED)
def test_a_malformed_metric_is_dropped_and_named(
    type_: str, payload: bytes, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = coded(info(type_, payload))
    assert merge([wrong, counter(1), wrong, counter(2)]) == merge([counter(3)])
    assert "ns:odd of t1" in caplog.text
    assert problem in caplog.text


@pytest.mark.parametrize(("type_", "payload", "problem"), MALFORMED)
def test_results_leave_malformed_metrics_out(type_: str, payload: bytes, problem: str) -> None:
    infos = [coded(info(type_, payload)), counter(4)]
    results = to_metric_results(infos, step_names=STEPS).query()
    assert [each.committed for group in results.values() for each in group] == [4]


def test_bytes_that_are_no_metric_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    assert merge([b"\xff\xff", counter(1)]) == (counter(1),)
    assert relabelled([b"\xff\xff"], {}) == ()
    assert element_counts([b"\xff\xff"]) == {}
    assert "no metric" in caplog.text


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(info(COUNTER, b"\1", urn="odd"), id="a URN without a namespace"),
        pytest.param(info(COUNTER, b"\1", urn=":"), id="a URN without a name"),
        pytest.param(
            mi.create_monitoring_info(mi.USER_COUNTER_URN, COUNTER, b"\1", {"NAME": "x"}),
            id="a user's metric without a namespace",
        ),
        pytest.param(
            mi.create_monitoring_info(mi.USER_COUNTER_URN, COUNTER, b"\1", {"NAMESPACE": "x"}),
            id="a user's metric without a name",
        ),
        pytest.param(info(COUNTER, b"\1", urn="a:" + "b" * (9 << 20)), id="a URN too long"),
        pytest.param(
            mi.create_monitoring_info("a:b", COUNTER, b"\1", {"a": "b" * (9 << 20)}), id="labels"
        ),
        pytest.param(info("type:unknown", b"a" * (9 << 20)), id="a value too long"),
    ],
)
def test_what_is_too_large_or_has_no_name_is_dropped(odd: Any) -> None:
    assert merge([coded(odd)]) == ()
    results = to_metric_results([coded(odd)], step_names=STEPS, user_metrics_only=False)
    assert not any(results.query().values())


@pytest.mark.parametrize("type_", [GAUGE, "", "other"])
def test_an_element_count_of_another_type_does_not_count(type_: str) -> None:
    labels = {mi.PCOLLECTION_LABEL: "pc"}
    wrong = mi.create_monitoring_info(mi.ELEMENT_COUNT_URN, type_, b"\1\1", labels)
    right = mi.int64_counter(mi.ELEMENT_COUNT_URN, 7, pcollection="pc")
    assert element_counts(map(coded, [wrong, right])) == {"pc": 7}
    with pytest.raises(MalformedBytesError, match="no sum of integers"):
        counter_value(wrong)


def test_histograms_that_do_not_fit_together(caplog: pytest.LogCaptureFixture) -> None:
    other = info(HISTOGRAM, buckets(3), urn=mi.USER_HISTOGRAM_URN)
    other.labels[mi.NAME_LABEL] = "h"
    assert merge([histogram(1), coded(other), histogram(2)]) == merge([histogram(1, 2)])
    assert "ns:h of t1 is dropped: two histograms" in caplog.text.replace("'", "")


def test_counts_of_histograms_do_not_overflow() -> None:
    full = coded(info(HISTOGRAM, buckets(1, (MAX_INT64,)), urn=mi.USER_HISTOGRAM_URN))
    assert merge([full, full]) == merge([full])


def test_counts_of_distributions_do_not_overflow() -> None:
    payload = b"\xff" * 8 + b"\x7f" + b"\x0e\x0e\x0e"  # 2^63 - 1 values
    full = coded(info(DISTRIBUTION, payload, urn=mi.USER_DISTRIBUTION_URN))
    (found,) = to_metric_results(merge([full, full]), step_names=STEPS).query()["distributions"]
    assert (found.committed.count, found.committed.sum) == (MAX_INT64, 28)


def test_a_trie_without_a_bound_has_that_of_beam() -> None:
    (merged,) = merge([coded(info(TRIE, trie(root=wide(60)))), coded(info(TRIE, trie()))])
    found = metrics_pb2.MonitoringInfo.FromString(merged)
    assert metrics_pb2.BoundedTrie.FromString(found.payload).bound == 100


def test_a_job_keeps_a_limited_number_of_metrics(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(monitoring, "MAX_METRICS", 3)
    kept = merge(counter(1, name=f"c{number}") for number in range(5))
    assert kept == tuple(counter(1, name=f"c{number}") for number in range(3))
    assert "more than 3 metrics" in caplog.text
    assert merge([*kept, counter(1, "c1")])[1] == counter(2, "c1")


def test_a_job_keeps_a_limited_number_of_bytes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(monitoring, "MAX_METRICS_BYTES", 2 * len(counter(1)) + 10)
    assert merge([counter(1, "a"), counter(1, "b"), counter(1, "c")]) == (
        counter(1, "a"),
        counter(1, "b"),
    )
    assert "bytes" in caplog.text


def test_strings_in_batches_of_unknown_number() -> None:
    payload = struct.pack(">i", -1) + b"\2\1a\1b\1\1c\0"
    (found,) = to_metric_results(
        [coded(info(STRINGS, payload, urn=mi.USER_STRING_SET_URN))], step_names=STEPS
    ).query()["string_sets"]
    assert found.committed == {"a", "b", "c"}
