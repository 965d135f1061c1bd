"""Batches between the thread that makes them and the one that gives them to Spark."""

import threading

import numpy as np
import pyarrow as pa
import pytest

from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.stages.charging import AbandonedError
from beam_spark_runner.engine.task.task_output import TaskOutput
from tests.unit.engine.task.emitted import values_to

LARGE = 1 << 17


class Unwatched:
    """See ``Watch``: nobody minds how long nothing comes."""

    check_every_s = 60.0

    def check(self) -> None: ...

    def note_batch(self) -> None: ...


def batch(*values: bytes) -> pa.RecordBatch:
    return schema.batch_of(7, np.zeros(len(values), np.int64), None, None, values)


def read(output: TaskOutput) -> list[pa.RecordBatch]:
    return list(output.read(Unwatched()))


def test_small_batches_are_put_together_in_their_order() -> None:
    output = TaskOutput()
    for number in range(100):
        output.emit(batch(b"%d" % number))
    output.finish()
    (whole,) = read(output)
    assert whole.schema == schema.ARROW_SCHEMA
    assert values_to(7, [whole]) == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([0], [1], id="a batch without rows"),
        pytest.param([0, 0], [2], id="two batches without rows"),
        pytest.param([1, LARGE, 1], [1, 1, 1], id="a large one goes for itself"),
        pytest.param([LARGE, LARGE], [1, 1], id="large ones"),
        pytest.param([40_000, 40_000, 1], [2, 1], id="small ones, until they are large"),
    ],
)
def test_small_batches_are_joined_in_their_order(sizes: list[int], batches: list[int]) -> None:
    output = TaskOutput()
    emitted = [b"%d" % number + b"x" * size for number, size in enumerate(sizes)]
    for each, size in zip(emitted, sizes, strict=True):
        output.emit(batch(each) if size else batch())
    output.finish()
    found = read(output)
    assert values_to(7, found) == [each for each, size in zip(emitted, sizes, strict=True) if size]
    assert len(found) == len(batches)
    assert output.emitted_bytes >= sum(sizes)


def test_an_error_is_raised_where_batches_are_read() -> None:
    output = TaskOutput()
    output.emit(batch(b"x" * LARGE))
    assert output.fail(ValueError("mine"))
    batches = output.read(Unwatched())
    assert len(next(batches)) == 1
    with pytest.raises(ValueError, match="mine"):
        next(batches)


def test_whoever_emits_hears_that_nobody_reads() -> None:
    output = TaskOutput()
    errors: list[type[BaseException]] = []

    def emit() -> None:
        try:
            while True:
                output.emit(batch(b"x" * LARGE))
        except AbandonedError as error:
            errors.append(type(error))

    thread = threading.Thread(target=emit)
    thread.start()
    next(output.read(Unwatched()))
    output.stop_reading()
    thread.join()
    assert errors == [AbandonedError]
    assert output.is_abandoned
    assert not output.fail(ValueError())
    with pytest.raises(AbandonedError):
        output.finish()
    with pytest.raises(AbandonedError):
        output.wait_us(60_000_000)
