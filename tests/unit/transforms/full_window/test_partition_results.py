"""What functions of full-window partitions may return, and what their bundles may emit."""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.transforms.full_window.functions import AggregateDoFn
from beam_spark_runner.transforms.full_window.mapping import (
    FunctionDoFn,
    MapPartitionDoFn,
    results_of,
)
from beam_spark_runner.transforms.full_window.partition_records import SecondPassError
from beam_spark_runner.transforms.full_window.whole import KeyDoFn

AT_ZERO = WindowedValue("last", 0, (GlobalWindow(),))


@pytest.mark.parametrize("results", ["text", b"bytes", {"a": 1}])
def test_results_that_are_no_iterable_of_results(results: Any) -> None:
    with pytest.raises(TypeError, match=r"has to return an iterable of results, such as a list"):
        [*results_of(results)]


@pytest.mark.parametrize(
    "result", [AT_ZERO, TimestampedValue(1, 2), beam.pvalue.TaggedOutput("tag", 1)]
)
def test_results_that_are_more_than_a_value(result: Any) -> None:
    fn = MapPartitionDoFn(FunctionDoFn(lambda _: [1, result]), ((), {}))
    with pytest.raises(
        TypeError, match="its results must be plain values, which get the end of the global window"
    ):
        [*fn.run([], (), {})]
    fn.start_bundle()
    fn.begin((), {})
    with pytest.raises(
        TypeError, match="its results must be plain values, which get the end of the global window"
    ):
        [*fn.end()]
    fn.teardown()


def test_a_function_may_return_nothing() -> None:
    assert [*results_of(None)] == []


class Finishing(beam.DoFn):  # type: ignore[misc]
    def __init__(self, last: Any) -> None:
        self._last = last

    def process(self, records: Any) -> Iterator[Any]:
        yield from records

    def finish_bundle(self) -> Iterator[Any]:
        yield self._last


def results_for(fn: beam.DoFn, keyed: bool) -> list[Any]:
    """Run a bundle as Beam's own operations do."""
    whole = KeyDoFn(fn) if keyed else fn
    whole.setup()
    whole.start_bundle()
    results = [*whole.process(("k", [1, 2]))] if keyed else []
    results += [each.value for each in whole.finish_bundle() or ()]
    whole.teardown()
    return results


def test_finish_bundle_of_a_partition_emits_windowed_values() -> None:
    fn = MapPartitionDoFn(Finishing(AT_ZERO), ((), {}))
    assert results_for(fn, keyed=False) == ["last"]
    fn = MapPartitionDoFn(Finishing("bare"), ((), {}))
    with pytest.raises(TypeError, match="has to yield WindowedValues, not str"):
        results_for(fn, keyed=False)


def test_finish_bundle_of_keys_emits_nothing() -> None:
    fn = MapPartitionDoFn(Finishing(AT_ZERO), ((), {}))
    with pytest.raises(TypeError, match="finish_bundle cannot emit anything here"):
        results_for(fn, keyed=True)


@pytest.mark.parametrize("keyed", [False, True])
def test_a_second_pass_over_the_values_of_a_key_is_an_error_too(keyed: bool) -> None:
    def twice(records: Any) -> list[int]:
        return [sum(records), sum(records)]

    fn = MapPartitionDoFn(FunctionDoFn(twice), ((), {}))
    with pytest.raises(SecondPassError, match="can be read only once"):
        results_for(fn, keyed=keyed)


def test_an_empty_partition_without_its_side_inputs_says_what_to_do() -> None:
    """As in an SDK harness without this package, if there are side inputs."""
    count = beam.combiners.CountCombineFn()
    assert results_for(AggregateDoFn(count, ((), {})), keyed=False) == [0]
    with pytest.raises(RuntimeError, match="install beam-spark-runner in its environment"):
        results_for(AggregateDoFn(count, None), keyed=False)
