from typing import Any

import pytest
from apache_beam.metrics import monitoring_infos as mi
from apache_beam.metrics.cells import (
    BoundedTrieData,
    DistributionData,
    GaugeData,
    HistogramData,
    StringSetData,
)
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.portability.api import metrics_pb2
from apache_beam.utils.histogram import Histogram, LinearBucket

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.portable import metric_values
from beam_spark_runner.portable.monitoring import merge, to_metric_results

STEPS = {TransformId("t1"): "Outer/Count", TransformId("t1-copy"): "Outer/Count"}


def counter(value: int, name: str = "c", step: str = "t1") -> bytes:
    return coded(mi.int64_user_counter("ns", name, value, step))


def distribution(*values: int, step: str = "t1") -> bytes:
    data = DistributionData.identity_element()
    for value in values:
        data = data.combine(DistributionData.singleton(value))
    return coded(mi.int64_user_distribution("ns", "d", data, step))


def gauge(value: int, seconds: float, step: str = "t1") -> bytes:
    return coded(mi.int64_user_gauge("ns", "g", GaugeData(value, seconds), step))


def strings(*values: str, step: str = "t1") -> bytes:
    return coded(mi.user_set_string("ns", "s", StringSetData(set(values)), step))


def trie(*paths: tuple[str, ...], step: str = "t1", bound: int = 100) -> bytes:
    data = BoundedTrieData(bound=bound)
    for path in paths:
        data.add(path)
    return coded(mi.user_bounded_trie("ns", "t", data, step))


def histogram(*values: int, step: str = "t1") -> bytes:
    filled = Histogram(LinearBucket(0, 10, 5))
    filled.record(*values)
    return coded(mi.user_histogram("ns", "h", HistogramData(filled), step))


def coded(info: Any) -> bytes:
    result: bytes = info.SerializeToString(deterministic=True)
    return result


def only(results: dict[str, list[Any]], group: str) -> Any:
    (result,) = results[group]
    return result


def shown(*infos: bytes, group: str) -> Any:
    result = only(to_metric_results(merge(infos), step_names=STEPS).query(), group)
    assert result.key.step == "Outer/Count"
    assert result.committed == result.attempted
    return result.committed


def test_counters_add_up() -> None:
    assert shown(counter(3), counter(4), group="counters") == 7


def test_counters_overflow_as_in_64_bits() -> None:
    assert shown(counter(2**63 - 1), counter(1), group="counters") == -(2**63)


def test_distributions_merge() -> None:
    found = shown(distribution(1, 5), distribution(), distribution(3), group="distributions")
    assert (found.count, found.sum, found.min, found.max) == (3, 9, 1, 5)


def test_the_latest_gauge_wins() -> None:
    found = shown(gauge(1, 10.0), gauge(3, 30.0), gauge(2, 20.0), group="gauges")
    assert (found.value, found.timestamp) == (3, 30.0)


def test_string_sets_unite() -> None:
    assert shown(strings("a", "b"), strings("b", "c"), group="string_sets") == {"a", "b", "c"}


def test_string_sets_stay_below_beams_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_values, "STRING_SET_LIMIT_CHARS", 4)
    assert shown(strings("bb", "cc"), strings("aa"), group="string_sets") == {"aa", "bb"}


def test_bounded_tries_merge() -> None:
    found = shown(trie(("a", "b")), trie(("a", "c"), ("d",)), group="bounded_tries")
    assert found.get_result() == {("a", "b", False), ("a", "c", False), ("d", False)}


def test_a_bounded_trie_keeps_its_bound() -> None:
    (merged,) = merge([trie(("a", "b"), bound=2), trie(("a", "c")), trie(("a", "d"))])
    info = metrics_pb2.MonitoringInfo.FromString(merged)
    proto = metrics_pb2.BoundedTrie.FromString(info.payload)
    assert proto.bound == 2
    assert proto.root.children["a"].truncated


def test_histograms_merge() -> None:
    found = shown(histogram(1, 2), histogram(15), group="histograms")
    assert found.histogram.total_count() == 3


def test_progress_is_left_out() -> None:
    info = metrics_pb2.MonitoringInfo(urn=mi.WORK_REMAINING_URN, type=mi.PROGRESS_TYPE)
    assert merge([coded(info)]) == ()


def test_of_an_unknown_type_one_payload_stays() -> None:
    infos = [
        metrics_pb2.MonitoringInfo(urn="u", type="beam:metrics:new:v1", payload=payload)
        for payload in (b"2", b"3", b"1")
    ]
    (merged,) = merge(map(coded, infos))
    assert metrics_pb2.MonitoringInfo.FromString(merged).payload == b"3"
    assert to_metric_results([merged], step_names={}, user_metrics_only=False).query()


def test_labels_keep_metrics_apart() -> None:
    assert len(merge([counter(1, "a"), counter(1, "b"), counter(1, "a", step="t2")])) == 3


def test_copies_of_a_step_are_one_to_the_user() -> None:
    assert shown(counter(1, step="t1"), counter(2, step="t1-copy"), group="counters") == 3


def test_a_step_without_a_name_keeps_its_id() -> None:
    results = to_metric_results([counter(1, step="unknown")], step_names=STEPS)
    assert only(results.query(), "counters").key.step == "unknown"


def test_committed_and_attempted_differ_when_bundles_failed() -> None:
    results = to_metric_results(
        [counter(1)], [counter(5), counter(2, "only attempted")], step_names=STEPS
    )
    found = {each.key.metric.name: each for each in results.query()["counters"]}
    assert (found["c"].committed, found["c"].attempted) == (1, 5)
    assert found["only attempted"].committed is None
    assert found["only attempted"].result == 2


@pytest.mark.parametrize(
    ("filter_", "names"),
    [
        (None, ["a", "b"]),
        (MetricsFilter().with_name("a"), ["a"]),
        (MetricsFilter().with_namespace("ns"), ["a", "b"]),
        (MetricsFilter().with_namespace("other"), []),
        (MetricsFilter().with_step("Count"), ["a"]),
        (MetricsFilter().with_step("Outer/Count"), ["a"]),
        (MetricsFilter().with_step("t1"), []),
    ],
)
def test_filters(filter_: MetricsFilter | None, names: list[str]) -> None:
    results = to_metric_results([counter(1, "a"), counter(1, "b", step="t2")], step_names=STEPS)
    found = results.query(filter_)["counters"]
    assert sorted(each.key.metric.name for each in found) == names


def element_count(collection: str, value: int) -> bytes:
    return coded(mi.int64_counter(mi.ELEMENT_COUNT_URN, value, pcollection=collection))


def test_what_the_sdk_measures_shows_on_request() -> None:
    infos = [element_count("p1", 3), element_count("p2", 4), counter(1)]
    assert len(to_metric_results(infos, step_names=STEPS).query()["counters"]) == 1
    results = to_metric_results(infos, step_names=STEPS, user_metrics_only=False)
    found = {
        each.key.labels.get("PCOLLECTION"): each.committed for each in results.query()["counters"]
    }
    assert found == {None: 1, "p1": 3, "p2": 4}


def test_monitoring_infos_hold_ids() -> None:
    (info,) = to_metric_results([counter(1)], step_names=STEPS).monitoring_infos()
    assert info.labels[mi.PTRANSFORM_LABEL] == "t1"
