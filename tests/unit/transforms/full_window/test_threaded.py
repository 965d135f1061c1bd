"""A function in a separate thread, and the bundle's thread: which of them waits, and when."""

import itertools
import threading
from collections.abc import Iterator

from apache_beam.metrics import Metrics
from apache_beam.metrics.execution import MetricsContainer
from apache_beam.runners.worker import statesampler
from apache_beam.utils.counters import CounterFactory

from beam_spark_runner.transforms.full_window.partition_records import CAPACITY, PartitionRecords
from beam_spark_runner.transforms.full_window.threaded import ThreadedHandover

PATIENCE_S = 60.0


def test_the_producer_waits_while_too_many_records_are_unseen() -> None:
    may_go_on, began = threading.Event(), threading.Event()
    handed_over: list[int] = []

    def run(records: PartitionRecords) -> Iterator[int]:
        for record in records:
            began.set()
            assert may_go_on.wait(PATIENCE_S)
            yield record

    handover = ThreadedHandover(run)

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
    assert handover.abandon()


def test_results_that_nobody_takes_hold_the_function_up() -> None:
    made: list[int] = []
    threads: list[threading.Thread] = []
    is_full = threading.Event()

    def run(records: PartitionRecords) -> Iterator[int]:
        threads.append(threading.current_thread())
        for number in range(10_000):
            made.append(number)
            if number == CAPACITY // 2:
                is_full.set()
            yield number

    handover = ThreadedHandover(run)
    assert is_full.wait(PATIENCE_S)
    threads[0].join(0.2)
    assert threads[0].is_alive()
    assert len(made) <= CAPACITY + 1
    assert sum(map(len, handover.end())) == 10_000


def test_an_error_wakes_a_producer_that_waits() -> None:
    may_fail = threading.Event()

    def run(records: PartitionRecords) -> Iterator[int]:
        yield next(records)
        assert may_fail.wait(PATIENCE_S)
        raise ValueError("now")

    handover = ThreadedHandover(run)
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


def test_metrics_are_those_of_the_step_whatever_the_bundle_does_meanwhile() -> None:
    counter = Metrics.counter("tests", "seen")
    sampler = statesampler.StateSampler("stage", CounterFactory())
    ours, other = MetricsContainer("Ours"), MetricsContainer("Other")
    sampler.start()
    try:
        with sampler.scoped_state("Ours", "process", metrics_container=ours):

            def run(records: PartitionRecords) -> Iterator[int]:
                for record in records:
                    counter.inc()
                    yield record

            handover = ThreadedHandover(run)
        with sampler.scoped_state("Other", "process", metrics_container=other):
            for _ in itertools.chain(handover.feed([*range(300)]), handover.end()):
                pass
    finally:
        sampler.stop()
    assert [cell.get_cumulative() for cell in ours.metrics.values()] == [300]
    assert not other.metrics
