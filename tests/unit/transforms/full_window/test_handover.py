"""The function of ``map_partition`` runs while records arrive, with few of them in between."""

import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import pytest
from apache_beam.metrics import Metrics
from apache_beam.metrics.execution import MetricsContainer
from apache_beam.runners.worker import statesampler
from apache_beam.utils.counters import CounterFactory

from beam_spark_runner.transforms.full_window.handover import Handover, hand_over
from beam_spark_runner.transforms.full_window.partition_records import (
    AbandonedPartitionError,
    PartitionRecords,
    SecondPassError,
)
from beam_spark_runner.transforms.full_window.switched import SwitchedHandover
from beam_spark_runner.transforms.full_window.threaded import ThreadedHandover

PATIENCE_S = 60.0
Kind: TypeAlias = Callable[[Callable[[PartitionRecords], Iterable[Any]]], Handover]


@pytest.fixture(params=[SwitchedHandover, ThreadedHandover])
def kind(request: pytest.FixtureRequest) -> Kind:
    made: Kind = request.param
    return made


def results_of(handover: Handover, records: list[Any]) -> list[Any]:
    """Feed all records, and return all results."""
    found = [each for some in handover.feed(records) for each in some]
    return found + [each for some in handover.end() for each in some]


@pytest.mark.parametrize("count", [0, 1, 49, 50, 51, 100, 1_000, 12_345])
def test_all_records_pass_in_order(kind: Kind, count: int) -> None:
    records = [*range(count)]
    assert results_of(kind(iter), records) == records


def test_records_that_are_none_are_not_the_end(kind: Kind) -> None:
    assert results_of(kind(lambda records: [[*records]]), [None, 1, None]) == [[None, 1, None]]


def test_a_function_that_makes_much_of_each_record(kind: Kind) -> None:
    def repeat(records: PartitionRecords) -> Iterator[int]:
        for record in records:
            yield from itertools.repeat(record, 1_000)

    assert len(results_of(kind(repeat), [*range(100)])) == 100_000


def test_the_function_sees_the_first_record_before_the_input_ends(kind: Kind) -> None:
    seen = threading.Event()

    def run(records: PartitionRecords) -> Iterator[int]:
        for record in records:
            seen.set()
            yield record

    handover = kind(run)
    assert [*handover.feed([1])] in ([], [[1]])
    assert seen.wait(PATIENCE_S)  # and nobody has said that this is all
    assert [*handover.end()] in ([], [[1]])


def test_a_function_that_returns_early_does_not_block_the_producer(kind: Kind) -> None:
    handover = kind(lambda records: [next(records)])
    assert results_of(handover, [*range(10_000)]) == [0]
    assert handover.abandon()


def test_an_error_of_the_function_reaches_the_producer_and_ends_both(kind: Kind) -> None:
    def run(records: PartitionRecords) -> Iterator[int]:
        for record in records:
            if record == 500:
                raise ValueError("no 500")
            yield record

    handover = kind(run)
    endless = (handover.feed([number]) for number in itertools.count())
    with pytest.raises(ValueError, match="no 500"):
        [*itertools.chain.from_iterable(endless)]
    assert handover.abandon()


def test_a_function_that_leaves_the_process_fails_its_task(kind: Kind) -> None:
    def run(records: PartitionRecords) -> Iterable[int]:
        raise SystemExit(3)

    handover = kind(run)
    with pytest.raises(SystemExit):
        [*handover.feed([1]), *handover.end()]
    assert handover.abandon()


@pytest.mark.parametrize("waits_for", ["records", "room"])
def test_an_abandoned_function_ends_and_cleans_up(kind: Kind, waits_for: str) -> None:
    cleaned: list[str] = []

    def run(records: PartitionRecords) -> Iterator[int]:
        try:
            yield from itertools.count() if waits_for == "room" else records
        except AbandonedPartitionError:
            cleaned.append("raised")
            raise
        except GeneratorExit:
            cleaned.append("closed")
            raise

    handover = kind(run)
    for _ in handover.feed([1]):
        break
    assert handover.abandon()
    assert cleaned in (["raised"], ["closed"])


def test_a_second_pass_is_an_error(kind: Kind) -> None:
    def run(records: PartitionRecords) -> Iterator[int]:
        yield sum(records)
        yield sum(records)

    with pytest.raises(SecondPassError, match="only once"):
        results_of(kind(run), [1, 2, 3])


def test_metrics_of_the_function_are_those_of_its_step(kind: Kind) -> None:
    counter = Metrics.counter("tests", "seen")
    sampler = statesampler.StateSampler("stage", CounterFactory())
    ours = MetricsContainer("Ours")

    def run(records: PartitionRecords) -> Iterator[int]:
        for record in records:
            counter.inc()
            yield record

    sampler.start()
    try:
        with sampler.scoped_state("Ours", "process", metrics_container=ours):
            results_of(kind(run), [*range(300)])
    finally:
        sampler.stop()
    assert [cell.get_cumulative() for cell in ours.metrics.values()] == [300]


def test_where_there_are_no_greenlets_it_is_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(hand_over(iter), SwitchedHandover)
    monkeypatch.delitem(sys.modules, SwitchedHandover.__module__)
    monkeypatch.setitem(sys.modules, "greenlet", None)
    handover = hand_over(iter)
    assert isinstance(handover, ThreadedHandover)
    assert results_of(handover, [1, 2]) == [1, 2]
