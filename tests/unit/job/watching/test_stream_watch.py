"""What is kept of the status of a streaming pipeline, and what goes to the log."""

from typing import Any

import apache_beam as beam
from apache_beam.metrics import monitoring_infos
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.job.watching.messages import JobMessages
from beam_spark_runner.job.watching.partition_advice import PartitionAdvice
from beam_spark_runner.job.watching.stream_watch import StreamWatch
from beam_spark_runner.observing.epoch_status import Blocked, EpochPart, EpochStatus, StepStatus
from beam_spark_runner.options import RunnerConfig
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.portable.monitoring import to_metric_results
from tests.compiled import compile_pipeline
from tests.unit.portable.pipelines import proto_of

STATUS = EpochStatus(
    epoch=7,
    clock_us=12_000_000,
    parts_us={EpochPart.COMMIT: 5},
    steps={"Sum": StepStatus(input_us=MAX_US, output_us=2_000_000)},
)


def plan() -> Plan:
    def build(p: beam.Pipeline) -> Any:
        return p | Stream().add_elements([1]) | beam.Map(print)

    return compile_pipeline(proto_of(build))


class Watched:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.emitted = self.reads = 0
        self.messages = JobMessages({})
        (self._source,) = (
            collection
            for transform in plan().graph.transforms.values()
            if transform.urn == "beam:transform:teststream:v1"
            for collection in transform.outputs.values()
        )
        self.watch = StreamWatch(
            plan(),
            self.messages,
            500_000,
            self._committed,
            PartitionAdvice(RunnerConfig(), self.messages.inform),
            now_s=lambda: self.now_s,
        )

    def _committed(self) -> list[bytes]:
        self.reads += 1
        counts = {self._source: self.emitted, "another": 99}
        return [
            monitoring_infos.int64_counter(
                monitoring_infos.ELEMENT_COUNT_URN, count, labels={"PCOLLECTION": collection}
            ).SerializeToString()
            for collection, count in counts.items()
        ]

    def lines(self) -> list[str]:
        return [each.message_text for each in self.messages.log.events()]


def test_watermarks_are_those_of_the_last_epoch() -> None:
    watched = Watched()
    assert watched.watch.watermarks() == {}
    watched.watch.note_epoch(STATUS)
    assert watched.watch.watermarks() == {"Sum": (MAX_TIMESTAMP, Timestamp(2))}


def test_the_growth_of_backlogs_and_the_age_of_the_last_epoch() -> None:
    watched = Watched()
    for backlog, seconds in ((100.0, 0), (700.0, 6), (None, 0)):
        watched.now_s += seconds
        read = StepStatus(input_us=0, output_us=0, backlog=backlog)
        watched.watch.note_epoch(EpochStatus(epoch=1, steps={"Read": read}))
        if backlog == 700.0:
            assert watched.watch.backlog_slopes() == {"Read": 100.0}
    assert watched.watch.backlog_slopes() == {}  # it is not known any more
    watched.now_s += 4
    assert watched.watch.epoch_age_s() == 4
    watched.watch.note_failed_commit()
    assert watched.watch.failed_commits == 1
    watched.watch.note_epoch(STATUS)
    assert watched.watch.processing_time_s() == 12  # of the TestStream


def test_a_line_each_minute_as_long_as_epochs_are_committed() -> None:
    watched = Watched()
    for number in range(13):
        watched.emitted = 100 * number
        watched.watch.note_epoch(STATUS)
        watched.now_s += 10
    watched.now_s += 600
    assert watched.lines() == [
        "epoch 7 · watermark 10 s behind (Sum)",
        "elements/s of each step: TestStream 10",
        "epoch 7 · watermark 10 s behind (Sum) · 10 elements/s",
        "elements/s of each step: TestStream 10",
    ]


def test_rates_of_steps_fall_when_nothing_comes() -> None:
    watched = Watched()
    assert watched.watch.rates() == {}
    for number in range(3):
        watched.emitted = 100 * number
        watched.watch.note_epoch(STATUS)
        watched.now_s += 2
    assert watched.watch.rates() == {"TestStream": 200 / 6}
    watched.now_s += 100
    assert watched.watch.rates() == {"TestStream": 0}


def test_metrics_are_not_read_in_each_of_many_short_epochs() -> None:
    watched = Watched()
    for _ in range(100):
        watched.watch.note_epoch(STATUS)
        watched.now_s += 0.05
        watched.emitted += 1
    assert watched.reads < 10


def test_watermarks_as_gauges_in_milliseconds() -> None:
    watched = Watched()
    assert watched.watch.watermark_gauges() == []
    watched.watch.note_epoch(STATUS)
    found = to_metric_results(
        [each.SerializeToString() for each in watched.watch.watermark_gauges()], step_names={}
    ).query()["gauges"]
    assert {
        (each.key.step, each.key.metric.namespace, each.key.metric.name): each.committed.value
        for each in found
    } == {
        ("Sum", "beam_spark_runner", "input_watermark"): MAX_US // 1000,
        ("Sum", "beam_spark_runner", "output_watermark"): 2_000,
    }


def test_what_waits_is_looked_at_while_nothing_is_due() -> None:
    watched = Watched()
    watched.watch.note_idle()
    blocked = Blocked(0, b"w", ("Rates",))
    step = StepStatus(input_us=0, output_us=0, blocked=blocked)
    watched.watch.note_epoch(EpochStatus(epoch=1, steps={"Look": step}))
    watched.now_s += 60
    watched.watch.note_idle()
    (line,) = watched.lines()
    assert line.startswith("Look: elements have waited for 60 s")


def test_the_time_of_all_epochs_is_added_up() -> None:
    watched = Watched()
    for _ in range(3):
        watched.watch.note_epoch(STATUS)
    assert watched.watch.took_us == {**dict.fromkeys(EpochPart, 0), EpochPart.COMMIT: 15}
