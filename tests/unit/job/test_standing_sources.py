"""A source that holds the watermark for long is said to the user."""

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.job.messages import JobMessages
from beam_spark_runner.job.telemetry import LiveTasks, TaskTelemetry
from beam_spark_runner.scheduling.attempts import Report, Residuals
from beam_spark_runner.scheduling.standing import PATIENCE_S


def test_the_warning_says_which_source_and_where() -> None:
    now_s = 100.0
    messages = JobMessages({TransformId("r"): "Read/Process", TransformId("s"): "Stands"})
    telemetry = TaskTelemetry("job", messages, LiveTasks(), None, None, now_s=lambda: now_s)
    for number in range(4):
        telemetry.accepted([report(0, 60_000_000, MIN_US), report(1, 90_000_000 + number, 5)])
        now_s += PATIENCE_S / 2
    first, second = sorted(each.message_text for each in messages.log.events())
    assert first.startswith(
        "Read/Process: has held the watermark at 1970-01-01T00:01:00Z for 60 s, with 4 restriction"
    )
    assert second.startswith("Stands: has held the watermark at the beginning of time for 60 s")
    telemetry.close()


def report(partition: int, read_us: int, stands_us: int) -> Report:
    return Report(
        level=0,
        partition=partition,
        attempt=partition,
        deferred={"r": Residuals(2, read_us), "s": Residuals(1, stands_us)},
    )
