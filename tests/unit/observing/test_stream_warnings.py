"""What is said to the user of a pipeline that does not come on."""

import pytest
from apache_beam.transforms.window import GlobalWindow

from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.observing.epoch_status import (
    Blocked,
    EpochPart,
    EpochStatus,
    Hold,
    HoldReason,
    StepStatus,
)
from beam_spark_runner.observing.unchanged_values import PATIENCE_S
from beam_spark_runner.observing.warnings import StreamWarnings


class Warned:
    def __init__(self, interval_us: int = 500_000) -> None:
        self.texts: list[str] = []
        self._warnings = StreamWarnings(self.texts.append, interval_us)
        self._now_s = 100.0

    def step(self, name: str, step: StepStatus, **others: StepStatus) -> None:
        """Take an epoch, half a minute after the previous one."""
        self.epoch(EpochStatus(epoch=1, steps={name: step, **others}))

    def epoch(self, status: EpochStatus) -> None:
        self._warnings.after_epoch(status, self._now_s)
        self._now_s += PATIENCE_S / 2


def source(at_us: int) -> StepStatus:
    hold = Hold(HoldReason.RESTRICTION, at_us)
    return StepStatus(input_us=MAX_US, output_us=at_us, hold=hold, restrictions=4)


@pytest.mark.parametrize(
    ("at_us", "text"),
    [
        (60_000_000, "1970-01-01T00:01:00Z"),
        (MIN_US, "the beginning of time"),
        (GlobalWindow().max_timestamp().micros, "9223371950454 s of Unix time"),
        (-70_000_000_000_000_000, "-70000000000 s of Unix time"),
    ],
)
def test_a_source_that_holds_the_watermark(at_us: int, text: str) -> None:
    warned = Warned()
    for _ in range(4):
        warned.step("Read/Process", source(at_us))
    (found,) = warned.texts
    assert found.startswith(
        f"Read/Process: this source has held the watermark at {text} for 60 s, with 4 stored "
        "restriction"
    )


def test_a_source_that_comes_on() -> None:
    warned = Warned()
    for number in range(9):
        warned.step("Read", source(number))
    assert warned.texts == []


def blocked(window: bytes) -> StepStatus:
    return StepStatus(
        input_us=5_000_000,
        output_us=2_000_000,
        hold=Hold(HoldReason.SIDE_INPUT, 2_000_000),
        blocked=Blocked(2_000_000, window, ("Rates",)),
    )


RATES = StepStatus(input_us=1_000_000, output_us=1_000_000)


def test_a_side_input_for_which_elements_wait() -> None:
    warned = Warned()
    for _ in range(5):
        warned.step("Convert", blocked(b"w"), Rates=RATES)
    (found,) = warned.texts
    assert found.startswith(
        "Convert: elements have waited for 60 s for the side input from Rates (its watermark: "
        "1970-01-01T00:00:01Z); the earliest has the timestamp 1970-01-01T00:00:02Z. No pane of "
        "the side input has fired"
    )


def test_a_side_input_for_which_elements_wait_while_nothing_is_due() -> None:
    texts: list[str] = []
    warnings = StreamWarnings(texts.append, 500_000)
    status = EpochStatus(epoch=1, steps={"Convert": blocked(b"w"), "Read": source(5)})
    warnings.after_epoch(status, 100.0)
    for now_s in (100.5, 160.0, 300.0):
        warnings.while_idle(status, now_s)
    assert [text.partition(":")[0] for text in texts] == ["Convert"]


def test_a_side_input_that_comes_window_by_window() -> None:
    warned = Warned()
    for number in range(9):
        warned.step("Convert", blocked(b"%d" % number), Rates=RATES)
    assert warned.texts == []


def test_timers_that_continue_firing_after_the_end_of_input() -> None:
    """The time to which they have come moves on."""

    def firing(input_us: int, at_us: int) -> StepStatus:
        return StepStatus(
            input_us=input_us, output_us=at_us, hold=Hold(HoldReason.DUE_TIMER, at_us)
        )

    warned = Warned()
    for second in range(5):
        warned.step("Early", firing(9_000_000, second * 1_000_000))
        warned.step("Loop", firing(MAX_US, second * 1_000_000))
    assert warned.texts == []
    for second in range(5):
        warned.step("Loop", firing(MAX_US, second * 1_000_000))
    (found,) = warned.texts
    assert found.startswith(
        "Loop: its input has ended, but its timers have kept firing for 60 s, up to "
        "1970-01-01T00:00:01Z"
    )


def took(part: EpochPart, took_us: int, budget_us: int = 500_000) -> EpochStatus:
    parts_us = {**dict.fromkeys(EpochPart, 100_000), part: took_us}
    return EpochStatus(
        epoch=17,
        took_us=sum(parts_us.values()),
        parts_us=parts_us,
        budget_us=budget_us,
        slowest=("Read + Group", 80_000),
    )


@pytest.mark.parametrize(
    ("part", "advice"),
    [
        (EpochPart.PLANNING, "The longest part was planning: this program"),
        (EpochPart.TASKS, "The longest part was tasks: check what these steps do"),
        (EpochPart.SPARK, "The longest part was Spark: tasks waited for free slots"),
        (EpochPart.COMMIT, "The longest part was commit: the checkpoint folder is slow"),
    ],
)
def test_a_slow_epoch_says_which_part_took_the_time(part: EpochPart, advice: str) -> None:
    warned = Warned()
    warned.epoch(took(EpochPart.TASKS, 60_000_000))  # the first one of a run
    for _ in range(3):
        warned.epoch(took(part, 6_000_000))
    (found,) = warned.texts
    assert found.startswith(
        f"epoch 17 took 6.3 s, at least 10 times its interval of 0.5 s: {part.value} 6.0 s, "
    )
    assert "The slowest task took 0.1 s, in Read + Group." in found
    assert advice in found


def test_a_step_for_which_windows_are_due_all_the_time() -> None:
    """Its watermark advances, but ever less than that of its input."""
    warned = Warned()
    for number in range(4):
        input_us, output_us = (100 + 30 * number) * 1_000_000, (60 + number) * 1_000_000
        hold = Hold(HoldReason.DUE_TIMER, output_us)
        warned.step("Sum", StepStatus(input_us=input_us, output_us=output_us, hold=hold))
    (found,) = warned.texts
    assert found.startswith("Sum: for 60 s, each epoch has left windows or timers of this step")
    assert "Its output is 98 s behind it." in found


def test_a_step_that_was_behind_for_a_while() -> None:
    warned = Warned()
    hold = Hold(HoldReason.DUE_TIMER, 5)
    for each in (hold, hold, None, hold, hold, None):
        warned.step("Sum", StepStatus(input_us=9, output_us=5, hold=each))
    assert warned.texts == []
