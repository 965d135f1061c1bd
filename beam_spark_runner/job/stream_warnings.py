"""Warnings about a streaming pipeline that makes no progress, or has slow epochs."""

from collections.abc import Callable

from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.scheduling.epoch_status import EpochPart, EpochStatus, HoldReason
from beam_spark_runner.scheduling.slow_epochs import TIMES, SlowEpochs
from beam_spark_runner.scheduling.unchanged_values import UnchangedValues

_FOR_SLOW = {
    EpochPart.PLANNING: "this program plans the Spark jobs; check whether its machine is busy",
    EpochPart.TASKS: "check what these steps do, or set more partitions (--parallelism) or a "
    "longer --batch_interval_millis",
    EpochPart.SPARK: "tasks waited for free slots, were repeated, or moved very much data; check "
    "whether the cluster is busy, and look at the Spark job in Spark's UI",
    EpochPart.COMMIT: "the checkpoint folder is slow; set a faster --checkpoint_dir, or a longer "
    "--batch_interval_millis",
}


class StreamWarnings:
    """Warns of held watermarks, blocked steps, endless timers and slow epochs, once of each cause.

    Args:
        warn: Is called with the text of each warning.
        interval_us: The interval between epochs, --batch_interval_millis, in microseconds.
    """

    def __init__(self, warn: Callable[[str], None], interval_us: int) -> None:
        self._warn = warn
        self._interval_us = interval_us
        self._sources: UnchangedValues[str] = UnchangedValues()
        self._blocked: UnchangedValues[str] = UnchangedValues()
        self._ended: UnchangedValues[str] = UnchangedValues()
        self._behind: UnchangedValues[str] = UnchangedValues()
        self._slow = SlowEpochs(interval_us)

    def after_epoch(self, status: EpochStatus, now_s: float) -> None:
        """Warn according to the status of an epoch; ``now_s`` is the monotonic clock."""
        self._warn_of_sources(status, now_s)
        self._warn_of_side_inputs(status, now_s)
        self._warn_of_timers(status, now_s)
        self._warn_of_steps_behind(status, now_s)
        if self._slow.is_slow(status):
            self._warn(slow_text(status, self._interval_us))

    def while_idle(self, status: EpochStatus, now_s: float) -> None:
        """Warn of blocked steps while no epoch is due; ``status`` is that of the last one.

        Blocked elements may be the reason why none is due. Sources are not warned of: one that has
        deferred itself holds the watermark on purpose.
        """
        self._warn_of_side_inputs(status, now_s)

    def _warn_of_sources(self, status: EpochStatus, now_s: float) -> None:
        holds_us = {
            name: step.hold.at_us
            for name, step in status.steps.items()
            if step.hold is not None and step.hold.holder is HoldReason.RESTRICTION
        }
        for name, for_s in self._sources.after_epoch(holds_us, now_s):
            self._warn(
                f"{name}: this source has held the watermark at {time_text(holds_us[name])} for "
                f"{for_s:.0f} s, with {status.steps[name].restrictions or 0:,} stored "
                "restriction(s). No later window can end meanwhile. Check the source's watermark "
                "estimator, which determines this watermark"
            )

    def _warn_of_side_inputs(self, status: EpochStatus, now_s: float) -> None:
        blocked = {
            name: step.blocked for name, step in status.steps.items() if step.blocked is not None
        }
        waiting = {name: (each.window, each.makers) for name, each in blocked.items()}
        for name, for_s in self._blocked.after_epoch(waiting, now_s):
            each = blocked[name]
            sides = ", ".join(
                f"{maker} (its watermark: {time_text(status.steps[maker].output_us)})"
                if maker in status.steps
                else maker
                for maker in each.makers
            )
            self._warn(
                f"{name}: elements have waited for {for_s:.0f} s for the side input from {sides}; "
                f"the earliest has the timestamp {time_text(each.since_us)}. No pane of the side "
                "input has fired for its window, and the watermark there has not passed the end of "
                "this window. Check what holds the watermark there, or give the side input a "
                "trigger, such as Repeatedly(AfterCount(1)), or shorter windows"
            )

    def _warn_of_timers(self, status: EpochStatus, now_s: float) -> None:
        """Warn of timers that still fire long after the end of the input.

        Of user timers, this happens only with --unaligned_splittable_timers; otherwise, an epoch
        fires all timers that are due before it ends.
        """
        firing = {
            name: HoldReason.DUE_TIMER
            for name, step in status.steps.items()
            if step.hold is not None
            and step.hold.holder is HoldReason.DUE_TIMER
            and step.input_us == MAX_US
        }
        for name, for_s in self._ended.after_epoch(firing, now_s):
            self._warn(
                f"{name}: its input has ended, but its timers have kept firing for {for_s:.0f} "
                f"s, up to {time_text(status.steps[name].output_us)}: there are very many, or one "
                "always sets itself again. Such a timer ends with its window only; the global "
                "window has no end"
            )

    def _warn_of_steps_behind(self, status: EpochStatus, now_s: float) -> None:
        """Warn of steps for which windows or timers are due all the time."""
        behind = {
            name: HoldReason.DUE_TIMER
            for name, step in status.steps.items()
            if step.hold is not None
            and step.hold.holder is HoldReason.DUE_TIMER
            and step.input_us != MAX_US
        }
        for name, for_s in self._behind.after_epoch(behind, now_s):
            step = status.steps[name]
            lag = ""
            if MIN_US < step.output_us < step.input_us:
                lag = f" Its output is {(step.input_us - step.output_us) / 1e6:.0f} s behind it."
            self._warn(
                f"{name}: for {for_s:.0f} s, each epoch has left windows or timers of this step "
                f"that its input watermark has passed to the next epoch.{lag} The budget of epochs "
                "grows meanwhile, up to a minute. If this continues, set more partitions "
                "(--parallelism), larger windows, or fewer keys"
            )


def slow_text(status: EpochStatus, interval_us: int) -> str:
    """Return the warning of a slow epoch: how long its parts took, and what to do."""
    longest = max(status.parts_us, key=lambda part: status.parts_us[part])
    parts = ", ".join(
        f"{part.value} {took_us / 1e6:.1f} s"
        for part, took_us in sorted(status.parts_us.items(), key=lambda each: -each[1])
    )
    steps, slowest_us = status.slowest
    return (
        f"epoch {status.epoch:,} took {status.took_us / 1e6:.1f} s, at least {TIMES} times its "
        f"interval of {interval_us / 1e6:g} s: {parts}. The slowest task took "
        f"{slowest_us / 1e6:.1f} s, in {steps}. The longest part was {longest.value}: "
        f"{_FOR_SLOW[longest]}"
    )


def time_text(time_us: int) -> str:
    """Return an event time in microseconds as text."""
    if time_us <= MIN_US:
        return "the beginning of time"
    if time_us >= MAX_US:
        return "the end of time"
    try:
        return str(Timestamp(micros=time_us).to_rfc3339())
    except OverflowError:  # its year is not one of 1 to 9999, as at the end of the global window
        return f"{time_us // 1_000_000} s of Unix time"
