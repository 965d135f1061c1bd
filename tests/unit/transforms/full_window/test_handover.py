"""The function of ``map_partition`` runs beside the bundle, with few records in between."""

import itertools
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from apache_beam.metrics import Metrics
from apache_beam.metrics.execution import MetricsContainer
from apache_beam.runners.worker import statesampler
from apache_beam.utils.counters import CounterFactory

from beam_spark_runner.transforms.full_window.handover import (
    CAPACITY,
    AbandonedPartitionError,
    Handover,
    Records,
    SecondPassError,
)

PATIENCE_S = 60.0


def results_of(handover: Handover, records: list[Any]) -> list[Any]:
    """Feed all records, and return all results."""
    found = [each for some in handover.feed(records) for each in some]
    return found + [each for some in handover.end() for each in some]


@pytest.mark.parametrize("count", [0, 1, 49, 50, 51, 100, 1_000, 12_345])
def test_all_records_pass_in_order(count: int) -> None:
    records = [*range(count)]
    assert results_of(Handover(iter), records) == records


def test_records_that_are_none_are_not_the_end() -> None:
    assert results_of(Handover(lambda records: [[*records]]), [None, 1, None]) == [[None, 1, None]]


def test_a_function_that_makes_much_of_each_record() -> None:
    def repeat(records: Records) -> Iterator[int]:
        for record in records:
            yield from itertools.repeat(record, 1_000)

    assert len(results_of(Handover(repeat), [*range(100)])) == 100_000


def test_the_function_sees_the_first_record_before_the_input_ends() -> None:
    seen = threading.Event()

    def run(records: Records) -> Iterator[int]:
        for record in records:
            seen.set()
            yield record

    handover = Handover(run)
    assert [*handover.feed([1])] in ([], [[1]])
    assert seen.wait(PATIENCE_S)  # and nobody has said that this is all
    assert [*handover.end()] in ([], [[1]])


def test_the_producer_waits_while_too_many_records_are_unseen() -> None:
    may_go_on, began = threading.Event(), threading.Event()
    handed_over: list[int] = []

    def run(records: Records) -> Iterator[int]:
        for record in records:
            began.set()
            assert may_go_on.wait(PATIENCE_S)
            yield record

    handover = Handover(run)

    def produce() -> None:
        for number in range(1_000):
            for _ in handover.feed([number]):
                pass
            handed_over.append(number)

    producer = threading.Thread(target=produce)
    producer.start()
    assert began.wait(PATIENCE_S)
    while len(handed_over) < CAPACITY // 2:  # so much it always takes
        producer.join(0.01)
    producer.join(0.2)
    assert producer.is_alive()
    assert len(handed_over) <= CAPACITY
    may_go_on.set()
    producer.join(PATIENCE_S)
    assert len(handed_over) == 1_000
    for _ in handover.end():
        pass
    assert handover.join(PATIENCE_S)


def test_results_that_nobody_takes_hold_the_function_up() -> None:
    made: list[int] = []
    is_full = threading.Event()

    def run(records: Records) -> Iterator[int]:
        for number in range(10_000):
            made.append(number)
            if number == CAPACITY // 2:
                is_full.set()
            yield number

    handover = Handover(run)
    assert is_full.wait(PATIENCE_S)
    assert not handover.join(0.2)
    assert len(made) <= CAPACITY + 1
    assert sum(map(len, handover.end())) == 10_000


def test_a_function_that_returns_early_does_not_block_the_producer() -> None:
    handover = Handover(lambda records: [next(records)])
    assert results_of(handover, [*range(10_000)]) == [0]
    assert handover.join(PATIENCE_S)


def test_an_error_of_the_function_reaches_the_producer_and_ends_both() -> None:
    def run(records: Records) -> Iterator[int]:
        for record in records:
            if record == 500:
                raise ValueError("no 500")
            yield record

    handover = Handover(run)
    endless = (handover.feed([number]) for number in itertools.count())
    with pytest.raises(ValueError, match="no 500"):
        [*itertools.chain.from_iterable(endless)]
    assert handover.join(PATIENCE_S)


def test_an_error_wakes_a_producer_that_waits() -> None:
    may_fail = threading.Event()

    def run(records: Records) -> Iterator[int]:
        yield next(records)
        assert may_fail.wait(PATIENCE_S)
        raise ValueError("now")

    handover = Handover(run)
    caught: list[BaseException] = []

    def produce() -> None:
        try:
            [*handover.feed([*range(1_000)])]
        except ValueError as error:
            caught.append(error)

    producer = threading.Thread(target=produce)
    producer.start()
    may_fail.set()
    producer.join(PATIENCE_S)
    assert [str(error) for error in caught] == ["now"]


def test_a_function_that_leaves_the_process_fails_its_task() -> None:
    def run(records: Records) -> Iterable[int]:
        raise SystemExit(3)

    handover = Handover(run)
    assert handover.join(PATIENCE_S)
    with pytest.raises(SystemExit):
        [*handover.feed([1])]


@pytest.mark.parametrize("waits_for", ["records", "room"])
def test_an_abandoned_function_ends_and_cleans_up(waits_for: str) -> None:
    cleaned: list[str] = []

    def run(records: Records) -> Iterator[int]:
        try:
            yield from itertools.count() if waits_for == "room" else records
        except AbandonedPartitionError:
            cleaned.append("raised")
            raise
        except GeneratorExit:
            cleaned.append("closed")
            raise

    handover = Handover(run)
    handover.abandon()
    assert handover.join(PATIENCE_S)
    assert cleaned in (["raised"], ["closed"])


def test_a_second_pass_is_an_error() -> None:
    def run(records: Records) -> Iterator[int]:
        yield sum(records)
        yield sum(records)

    with pytest.raises(SecondPassError, match="only once"):
        results_of(Handover(run), [1, 2, 3])


def test_a_pass_may_go_on_where_it_was_left() -> None:
    records = Records([1, 2, 3, 4])
    assert next(records) == 1
    assert [*itertools.islice(records, 2)] == [2, 3]
    assert [*records] == [4]
    with pytest.raises(StopIteration):
        next(records)
    with pytest.raises(SecondPassError):
        iter(records)


def test_metrics_of_the_function_are_those_of_its_step() -> None:
    counter = Metrics.counter("tests", "seen")
    sampler = statesampler.StateSampler("stage", CounterFactory())
    ours, other = MetricsContainer("Ours"), MetricsContainer("Other")
    sampler.start()
    try:
        with sampler.scoped_state("Ours", "process", metrics_container=ours):

            def run(records: Records) -> Iterator[int]:
                for record in records:
                    counter.inc()
                    yield record

            handover = Handover(run)
        with sampler.scoped_state("Other", "process", metrics_container=other):
            results_of(handover, [*range(300)])
    finally:
        sampler.stop()
    assert [cell.get_cumulative() for cell in ours.metrics.values()] == [300]
    assert not other.metrics
