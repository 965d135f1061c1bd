"""A job ends while a task of this process still works for it."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

from beam_spark_runner.driving.program_builder import ProgramBuilder
from beam_spark_runner.engine.limits import Limits
from beam_spark_runner.engine.rows import schema
from beam_spark_runner.engine.stages.charging import AbandonedError
from beam_spark_runner.engine.task import task
from beam_spark_runner.engine.worker.runtime import worker
from tests.compiled import compile_pipeline
from tests.unit.portable.pipelines import proto_of

BEGAN = threading.Event()
HAPPENED: list[str] = []


class Endless(beam.DoFn):  # type: ignore[misc]
    def __init__(self, size: int) -> None:
        self._size = size

    def process(self, _: bytes) -> Iterator[bytes]:
        while True:
            BEGAN.set()
            time.sleep(0.01)
            if self._size:
                yield bytes(self._size)

    def teardown(self) -> None:
        HAPPENED.append("torn down")


@pytest.mark.parametrize("size", [0, 10, 1 << 20], ids=["nothing", "little", "much"])
@pytest.mark.parametrize("is_read", [False, True], ids=["Spark does not read", "Spark reads"])
def test_user_code_is_interrupted_and_torn_down(size: int, is_read: bool) -> None:
    def build(p: beam.Pipeline) -> None:
        p | beam.Impulse() | beam.ParDo(Endless(size)) | beam.Reshuffle() | beam.Map(print)

    BEGAN.clear()
    HAPPENED.clear()
    plan = compile_pipeline(proto_of(build))
    segment = plan.segments[0]
    limits = Limits(
        max_attempts=1, row_limit_bytes=1 << 22, max_element_bytes=1 << 22, cache_bytes=0
    )
    job_id = f"endless-{size}-{is_read}"
    program = ProgramBuilder(plan, job_id, limits).level(
        segment, 0, 2, {}, job=range(len(segment.levels)), round_budget_s=None
    )
    impulse = schema.batch_of(int(segment.impulses[0]), np.zeros(1, np.int64), None, None, [b""])
    raised: list[Any] = []
    reads = threading.Event()

    def run() -> None:
        try:
            output = task.LevelTask(program).run(iter([impulse]))
            for _ in output:
                reads.wait(0 if is_read else 60)
        except AbandonedError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert BEGAN.wait(60)
    assert worker.end_job(job_id, 60)
    assert HAPPENED == ["torn down"]
    reads.set()
    thread.join(60)
    assert not thread.is_alive()
    assert raised
