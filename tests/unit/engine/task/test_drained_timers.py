"""A timer of processing time that sets itself again, at the end of all input and of a drain."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.portability.api import metrics_pb2
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import CombiningValueStateSpec, TimerSpec, on_timer
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.engine.task import task
from beam_spark_runner.engine.worker.runtime import worker
from beam_spark_runner.portable.metric_values import counter_value
from beam_spark_runner.portable.monitoring import DROPPED_BY_DRAIN, name_of
from tests.unit.engine.task.epochs_of_tasks import HAPPENED, epoch, programs_of

JOB = "drained timers"
ROUNDS = 4


@pytest.fixture(autouse=True)
def _worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task, "IS_KEPT", True)  # as in a Python worker
    HAPPENED.clear()
    yield
    worker.end_job(JOB, 60)


class Polls(beam.DoFn):  # type: ignore[misc]
    """Looks four times."""

    SEEN = CombiningValueStateSpec("seen", sum)
    LOOK = TimerSpec("look", TimeDomain.REAL_TIME)

    def process(self, pair: tuple[str, int], look: Any = beam.DoFn.TimerParam(LOOK)) -> None:
        look.set(Timestamp(3))

    @on_timer(LOOK)  # type: ignore[untyped-decorator]
    def looks(
        self, seen: Any = beam.DoFn.StateParam(SEEN), look: Any = beam.DoFn.TimerParam(LOOK)
    ) -> None:
        seen.add(1)
        HAPPENED.append(f"look {seen.read()}")
        if seen.read() < ROUNDS:
            look.set(Timestamp(3))


@pytest.mark.parametrize("drains", [False, True], ids=["end of input", "drain"])
def test_it_fires_until_it_is_not_set_again_but_once_in_a_drain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, drains: bool
) -> None:
    def build(p: beam.Pipeline) -> None:
        numbers = p | Stream(coder=VarIntCoder()).add_elements([1])
        keyed = numbers | beam.Map(lambda number: ("k", number)).with_output_types(tuple[str, int])
        keyed | "Poll" >> beam.ParDo(Polls())

    caplog.set_level(logging.WARNING)
    begins = reports_pb2.Epoch(number=1, clock_stands=True, drains=drains, budget_us=10**9)
    *_, report = epoch(programs_of(build, tmp_path, job=JOB), begins, 1, watermark_us=MAX_US)
    assert [f"look {number}" for number in range(1, 2 if drains else ROUNDS + 1)] == HAPPENED
    infos = [metrics_pb2.MonitoringInfo.FromString(each) for each in report.monitoring_infos]
    dropped = [counter_value(each) for each in infos if DROPPED_BY_DRAIN in name_of(each)]
    said = [each.getMessage() for each in caplog.records]
    assert dropped == [1] * drains
    assert len(said) == drains
    if drains:
        assert said[0].startswith("Poll: the drain has dropped 1 processing-time timers of 1 keys")
