"""Warnings about a streaming pipeline that makes no progress, or has slow epochs."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.observing.epoch_status import (
    EpochPart,
    EpochStatus,
    HoldReason,
    StepStatus,
)
from beam_spark_runner.observing.large_groups import LargeGroups, text_of_group
from beam_spark_runner.observing.slow_epochs import TIMES, SlowEpochs
from beam_spark_runner.observing.unchanged_values import UnchangedValues

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_FOR_SLOW = {
    EpochPart.PLANNING: "this program plans the Spark jobs; check whether its machine is busy",
    EpochPart.TASKS: "check what these steps do, or set more partitions (--parallelism) or a "
    "longer --batch_interval_millis",
    EpochPart.SPARK: "tasks waited for free slots, were repeated, or moved very much data; check "
    "whether the cluster is busy, and look at the Spark job in the Spark UI",
    EpochPart.COMMIT: "the checkpoint folder is slow; set a faster --checkpoint_dir, or a longer "
    "--batch_interval_millis",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition of a step that should not last, and the warning about it.

    Attributes:
        value: Returns a value of the step while the condition holds, else None. The warning is due
            when this value has not changed for some time, see ``UnchangedValues``.
        text: Returns the warning, from the status of the epoch, the name of the step, and the
            seconds for which the value has not changed.
        holds_between_epochs: Whether the condition is also checked while no epoch is due.
    """

    value: Callable[[StepStatus], Hashable | None]
    text: Callable[[EpochStatus, str, float], str]
    holds_between_epochs: bool = False


def _held_by_source(step: StepStatus) -> Hashable | None:
    hold = step.hold
    return hold.at_us if hold is not None and hold.holder is HoldReason.RESTRICTION else None


def _text_of_source(status: EpochStatus, name: str, for_s: float) -> str:
    step = status.steps[name]
    held_us = step.hold.at_us if step.hold is not None else step.output_us
    return (
        f"{name}: this source has held the watermark at {event_time_text(held_us)} for "
        f"{for_s:.0f} s, with {step.restrictions or 0:,} stored restriction(s). No later window "
        "can end meanwhile. Check the source's watermark estimator, which determines this watermark"
    )


def _awaited_side_inputs(step: StepStatus) -> Hashable | None:
    blocked = step.blocked
    return None if blocked is None else (blocked.window, blocked.producers)


def _text_of_side_inputs(status: EpochStatus, name: str, for_s: float) -> str:
    blocked = status.steps[name].blocked
    assert blocked is not None, "the rule applies to blocked steps only"
    sides = ", ".join(
        f"{producer} (its watermark: {event_time_text(status.steps[producer].output_us)})"
        if producer in status.steps
        else producer
        for producer in blocked.producers
    )
    return (
        f"{name}: elements have waited for {for_s:.0f} s for the side input from {sides}; "
        f"the earliest has the timestamp {event_time_text(blocked.since_us)}. No pane of the side "
        "input has fired for its window, and the watermark there has not passed the end of "
        "this window. Check what holds the watermark there, or give the side input a "
        "trigger, such as Repeatedly(AfterCount(1)), or shorter windows"
    )


def _fires_due_timers(step: StepStatus) -> bool:
    return step.hold is not None and step.hold.holder is HoldReason.DUE_TIMER


def _fires_after_its_input(step: StepStatus) -> Hashable | None:
    """Of user timers, this happens only with --unaligned_splittable_timers.

    Otherwise, an epoch fires all timers that are due before it ends.
    """
    return True if _fires_due_timers(step) and step.input_us == MAX_US else None


def _text_of_endless_timers(status: EpochStatus, name: str, for_s: float) -> str:
    return (
        f"{name}: its input has ended, but its timers have kept firing for {for_s:.0f} s, up "
        f"to {event_time_text(status.steps[name].output_us)}: there are very many, or one always "
        "sets itself again. Such a timer ends with its window only; the global window has no end"
    )


def _leaves_due_work(step: StepStatus) -> Hashable | None:
    return True if _fires_due_timers(step) and step.input_us != MAX_US else None


def _text_of_due_work(status: EpochStatus, name: str, for_s: float) -> str:
    step = status.steps[name]
    lag = ""
    if MIN_US < step.output_us < step.input_us:
        lag = f" Its output is {(step.input_us - step.output_us) / 1e6:.0f} s behind it."
    return (
        f"{name}: for {for_s:.0f} s, each epoch has left windows or timers of this step "
        f"that its input watermark has passed to the next epoch.{lag} The budget of epochs "
        "grows meanwhile, up to a minute. If this continues, set more partitions "
        "(--parallelism), larger windows, or fewer keys"
    )


def _leaves_reads(step: StepStatus) -> Hashable | None:
    return True if step.left else None


def _text_of_reads(status: EpochStatus, name: str, for_s: float) -> str:
    step = status.steps[name]
    return (
        f"{name}: for {for_s:.0f} s, each epoch has left elements or timers to the next one, now "
        f"{step.left or 0:,}, since their reads of the state store were not done. If this "
        "continues, set more partitions (--parallelism), or use a state store that is nearer. "
        "Elements of one key are processed one after another: fewer reads that depend on each "
        "other, or smaller keys, help there"
    )


RULES = (
    # A source that has deferred itself holds the watermark on purpose while no epoch is due.
    Rule(_held_by_source, _text_of_source),
    # Blocked elements may be the reason why no epoch is due.
    Rule(_awaited_side_inputs, _text_of_side_inputs, holds_between_epochs=True),
    Rule(_fires_after_its_input, _text_of_endless_timers),
    Rule(_leaves_due_work, _text_of_due_work),
    Rule(_leaves_reads, _text_of_reads),
)
"""The rules about steps, in the order of their warnings."""


class StreamWarnings:
    """Warns of the conditions of ``RULES``, of slow epochs, and of large groups of keys.

    It warns once of each cause.

    Args:
        warn: Is called with the text of each warning.
        interval_us: The interval between epochs, --batch_interval_millis, in microseconds.
    """

    def __init__(self, warn: Callable[[str], None], interval_us: int) -> None:
        self._warn = warn
        self._interval_us = interval_us
        self._unchanged: tuple[tuple[Rule, UnchangedValues[str]], ...] = tuple(
            (rule, UnchangedValues()) for rule in RULES
        )
        self._slow = SlowEpochs(interval_us)
        self._groups = LargeGroups()

    def after_epoch(self, status: EpochStatus, now_s: float) -> None:
        """Warn according to the status of an epoch; ``now_s`` is the monotonic clock."""
        for rule, unchanged in self._unchanged:
            self._apply(rule, unchanged, status, now_s)
        if self._slow.is_slow(status):
            self._warn(slow_text(status, self._interval_us))
        for group in self._groups.after_epoch(status):
            self._warn(text_of_group(*group))

    def while_idle(self, status: EpochStatus, now_s: float) -> None:
        """Warn while no epoch is due; ``status`` is that of the last one."""
        for rule, unchanged in self._unchanged:
            if rule.holds_between_epochs:
                self._apply(rule, unchanged, status, now_s)

    def _apply(
        self, rule: Rule, unchanged: UnchangedValues[str], status: EpochStatus, now_s: float
    ) -> None:
        values: Mapping[str, Hashable] = {
            name: value
            for name, step in status.steps.items()
            if (value := rule.value(step)) is not None
        }
        for name, for_s in unchanged.after_epoch(values, now_s):
            self._warn(rule.text(status, name, for_s))


def slow_text(status: EpochStatus, interval_us: int) -> str:
    """Return the warning of a slow epoch: how long its parts took, and what to do."""
    longest = max(status.parts_us, key=lambda part: status.parts_us[part])
    parts = ", ".join(
        f"{part.value} {took_us / 1e6:.1f} s"
        for part, took_us in sorted(status.parts_us.items(), key=lambda item: -item[1])
    )
    steps, slowest_us = status.slowest
    return (
        f"epoch {status.epoch:,} took {status.took_us / 1e6:.1f} s, at least {TIMES} times its "
        f"interval of {interval_us / 1e6:g} s: {parts}. The slowest task took "
        f"{slowest_us / 1e6:.1f} s, in {steps}. The longest part was {longest.value}: "
        f"{_FOR_SLOW[longest]}"
    )


def event_time_text(time_us: int) -> str:
    """Return an event time in microseconds as text.

    Example:
        >>> event_time_text(1_500_000), event_time_text(MIN_US)
        ('1970-01-01T00:00:01.500000Z', 'the beginning of time')
    """
    if time_us <= MIN_US:
        return "the beginning of time"
    if time_us >= MAX_US:
        return "the end of time"
    try:
        time = _UNIX_EPOCH + timedelta(microseconds=time_us)
    except OverflowError:  # its year is not one of 1 to 9999, as at the end of the global window
        return f"{time_us // 1_000_000} s of Unix time"
    return f"{time.replace(tzinfo=None).isoformat()}Z"
