"""Merging metrics in any order and grouping yields the same."""

from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.metrics import monitoring_infos as mi
from apache_beam.portability.api import metrics_pb2

pytest.importorskip("hypothesis")
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_spark_runner.portable.monitoring import merge
from tests.examples import examples
from tests.unit.portable.test_monitoring import (
    counter,
    distribution,
    gauge,
    histogram,
    strings,
    trie,
)

small = st.integers(-(2**62), 2**62)
words = st.text("abc", max_size=3)
steps = st.sampled_from(["t1", "t2"])


def infos_of(make: Callable[..., bytes], *args: Any) -> st.SearchStrategy[bytes]:
    return st.builds(lambda step, values: make(*values, step=step), steps, st.tuples(*args))


def many_of(make: Callable[..., bytes], values: Any) -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda step, drawn: make(*drawn, step=step), steps, st.lists(values, max_size=3)
    )


an_info = st.one_of(
    st.builds(lambda step, value: counter(value, step=step), steps, small),
    many_of(distribution, st.integers(-1000, 1000)),
    infos_of(gauge, small, st.integers(0, 3)),
    many_of(strings, words),
    many_of(trie, st.lists(words, min_size=1, max_size=3).map(tuple)),
    many_of(histogram, st.integers(0, 60)),
)
bundles = st.lists(an_info, max_size=6)


@settings(max_examples=examples(200))
@given(bundles, bundles, bundles)
def test_merging_is_associative_and_commutative(
    some: list[bytes], more: list[bytes], rest: list[bytes]
) -> None:
    at_once = normal(merge([*some, *more, *rest]))
    assert normal(merge([*merge([*some, *more]), *rest])) == at_once
    assert normal(merge([*some, *merge([*more, *rest])])) == at_once
    assert normal(merge([*rest, *more, *some])) == at_once


def normal(infos: tuple[bytes, ...]) -> list[Any]:
    """Tries and histograms by their contents: equal ones may have different bytes."""
    normalised = []
    for each in map(metrics_pb2.MonitoringInfo.FromString, infos):
        value: Any = each.payload
        if mi.is_bounded_trie(each):
            value = mi.extract_bounded_trie_value(each).get_result()
        elif mi.is_histogram(each):
            value = mi.extract_histogram_value(each)
        normalised.append((each.urn, dict(each.labels), value))
    return normalised
