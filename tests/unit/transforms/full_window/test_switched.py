"""A function and its bundle, which have one thread in turns."""

import contextvars
import decimal
import itertools
import threading
from collections.abc import Iterator

from beam_spark_runner.transforms.full_window.partition_records import CAPACITY, PartitionRecords
from beam_spark_runner.transforms.full_window.switched import SwitchedHandover


def test_results_are_handed_over_before_the_function_waits() -> None:
    handover = SwitchedHandover(iter)
    assert [*handover.feed([1])] == [[1]]
    assert [*handover.feed([2, 3])] == [[2, 3]]
    assert [*handover.end()] == []


def test_a_function_that_makes_results_without_end_waits_for_each_block() -> None:
    made: list[int] = []

    def run(records: PartitionRecords) -> Iterator[int]:
        for number in itertools.count():
            made.append(number)
            yield number

    handover = SwitchedHandover(run)
    results = handover.feed([1])
    for block in range(1, 4):
        assert len(next(results)) == CAPACITY
        assert len(made) == block * CAPACITY
    assert handover.abandon()


def test_the_function_has_the_thread_and_the_context_of_the_bundle() -> None:
    of_setup = contextvars.ContextVar("of_setup", default="nothing")
    of_setup.set("set up")
    seen: list[object] = []

    def run(records: PartitionRecords) -> Iterator[int]:
        seen.extend((threading.current_thread(), of_setup.get(), decimal.getcontext().prec))
        yield from records

    with decimal.localcontext() as context:
        context.prec = 7
        handover = SwitchedHandover(run)
        assert [*handover.feed([1])] == [[1]]
    assert seen == [threading.current_thread(), "set up", 7]


def test_a_function_that_has_not_begun_is_abandoned() -> None:
    assert SwitchedHandover(iter).abandon()


def test_an_abandoned_function_may_fail() -> None:
    def run(records: PartitionRecords) -> Iterator[int]:
        try:
            yield from records
        finally:
            raise ValueError("cleaning up")

    handover = SwitchedHandover(run)
    assert [*handover.feed([1])] == [[1]]
    assert handover.abandon()


def test_a_function_that_continues_although_it_is_abandoned() -> None:
    def run(records: PartitionRecords) -> Iterator[int]:
        while True:
            try:
                yield next(records)
            except BaseException:  # the worst of user code
                records = PartitionRecords([itertools.count()])

    handover = SwitchedHandover(run)
    assert [*handover.feed([1])] == [[1]]
    assert not handover.abandon()


def test_another_thread_cannot_end_the_function() -> None:
    handover = SwitchedHandover(iter)
    assert [*handover.feed([1])] == [[1]]
    ended: list[bool] = []
    thread = threading.Thread(target=lambda: ended.append(handover.abandon()))
    thread.start()
    thread.join()
    assert ended == [False]
    assert [*handover.feed([2])] == [[2]]
    assert handover.abandon()
