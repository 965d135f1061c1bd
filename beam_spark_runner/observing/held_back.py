"""One sentence about a job: what holds it back, and what helps.

The rules look at the same facts as a person would, the most certain first: an end, a wait that is
no work of the job's, what holds the watermark, epochs that take long, the step that takes most of
the time. The first one that applies is the sentence.
"""

from collections.abc import Callable
from datetime import datetime

from beam_spark_runner.core.rendering import first_line_of
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.observing import job_facts
from beam_spark_runner.observing.disturbances import (
    has_lost_executors,
    lacks_storage,
    was_restarted,
)
from beam_spark_runner.observing.epoch_status import EpochPart, HoldReason, StepStatus
from beam_spark_runner.observing.job_facts import JobFacts
from beam_spark_runner.observing.line_parts import count_text
from beam_spark_runner.observing.message_lines import WARNING
from beam_spark_runner.observing.sentence import Sentence, Tone
from beam_spark_runner.observing.skew import SKEW_REMEDY, has_skew, key_text, skew_of_epoch
from beam_spark_runner.observing.stream_line import duration_text

_NO_TASK_AFTER_S = 15.0
_NO_COMMIT_AFTER_S = 60.0
_LAG_FROM_S = 30.0
_SLOW_TIMES = 3  # a usual epoch takes its interval, or its budget if there is a backlog
_MIN_EPOCH_US = 500_000
_LATEST_EPOCHS = 5
_SHARE_FROM = 0.4  # of the busy time of all steps, to be named as the slowest one
_BUSY_FROM = 0.5  # cores that steps keep busy, if one of them is what takes the time
_WARNED_WITHIN_S = 120.0


def held_back(facts: JobFacts) -> Sentence:
    """Return the sentence about a job."""
    for rule in RULES:
        if (sentence := rule(facts)) is not None:
            return sentence
    return Sentence(text="It runs.", tone=Tone.GOOD)


def failing_step(facts: JobFacts) -> str:
    """Return the full name of the step in which a job has failed. "": not known, or none."""
    where, colon, _ = facts.error.partition(": ")
    names = [node.name for node in facts.graph.nodes]
    if not colon or not names:
        return ""
    inside = [name for name in names if name == where or name.startswith(f"{where}/")]
    return inside[0] if inside else ""


def introduced_us(facts: JobFacts, step: StepStatus) -> int:
    """Return by how much a step delays the watermark: the lag that its input does not have."""
    now_us = 0 if facts.status is None else facts.status.clock_us
    if step.output_us in (MIN_US, MAX_US):
        return 0
    return max(0, min(step.input_us, now_us) - step.output_us)


def _has_ended(facts: JobFacts) -> Sentence | None:
    if facts.state == job_facts.FAILED:
        step = failing_step(facts)
        cause = first_line_of(facts.error) or "the reason was not recorded"
        if step:
            where, _, raised = facts.error.partition(": ")
            text = f"It has failed in {where}: {first_line_of(raised)}"
            remedy = "The traceback is below. Correct this step, and run the pipeline again."
        else:
            text, remedy = f"It has failed: {cause}", "The whole error is below."
        return Sentence(text=text, tone=Tone.BAD, remedy=remedy, step=step)
    if not facts.has_ended:
        return None
    word = {job_facts.DONE: "done", job_facts.DRAINED: "drained"}.get(facts.state, "cancelled")
    took = "" if facts.age_s is None else f" after {duration_text(int(facts.age_s))}"
    read = f"; its sources have emitted {facts.read:,} elements" if facts.read else ""
    return Sentence(text=f"It is {word}{took}{read}.", tone=Tone.GOOD)


def _waits_for_its_turn(facts: JobFacts) -> Sentence | None:
    if facts.state != job_facts.QUEUED:
        return None
    return Sentence(
        text="It waits for its turn: as many jobs run as the server allows.",
        tone=Tone.HELD,
        remedy="Wait, cancel another job, or raise --max_concurrent_jobs of the job server.",
    )


def _waits_for_executors(facts: JobFacts) -> Sentence | None:
    waits_since_s = facts.entered_s
    if facts.state != job_facts.STARTING:
        if facts.has_tasks is not False:
            return None
        if facts.segment is not None:
            waits_since_s = facts.segment.began_s
        elif facts.is_streaming and facts.status is None:
            waits_since_s = facts.entered_s
        else:
            return None
    if waits_since_s is not None and facts.tasks_seen_s is not None:
        waits_since_s = max(waits_since_s, facts.tasks_seen_s)
    if waits_since_s is None or facts.now_s - waits_since_s < _NO_TASK_AFTER_S:
        return None
    for_s = duration_text(int(facts.now_s - waits_since_s))
    return Sentence(
        text=f"It waits for executors: no task has begun for {for_s}.",
        tone=Tone.HELD,
        remedy="Look at the Spark UI: the cluster may be busy, or have no executor for this job.",
    )


def _starts(facts: JobFacts) -> Sentence | None:
    if facts.state == job_facts.STARTING:
        return Sentence(text="It starts.", tone=Tone.GOOD)
    if facts.is_streaming and facts.status is None:
        return Sentence(text="It runs its first epoch.", tone=Tone.GOOD)
    return None


def _commits_nothing(facts: JobFacts) -> Sentence | None:
    """An epoch is late. That none is due is no reason: a source may wait for hours."""
    warned = _latest_warning(facts)
    if warned is None or facts.committed_s is None:
        return None
    for_s = facts.now_s - facts.committed_s
    if for_s < _NO_COMMIT_AFTER_S:
        return None
    return Sentence(
        text=f"No epoch has been committed for {duration_text(int(for_s))}: {warned}",
        tone=Tone.HELD,
    )


def _waits_for_side_inputs(facts: JobFacts) -> Sentence | None:
    for name, step in facts.steps.items():
        if step.blocked is None or introduced_us(facts, step) < _LAG_FROM_S * 1e6:
            continue
        producers = ", ".join(step.blocked.producers)
        return Sentence(
            text=f"{name} waits for its side input from {producers}, "
            f"{_behind(introduced_us(facts, step))}.",
            tone=Tone.HELD,
            remedy="Check what holds the watermark of the side input, or give it a trigger, such "
            "as Repeatedly(AfterCount(1)), or shorter windows.",
            step=name,
        )
    return None


_HELD_BY = {
    HoldReason.RESTRICTION: (
        "its source",
        "Check the source and its watermark estimator; if it has a backlog, set more partitions "
        "(--parallelism).",
    ),
    HoldReason.TIMER: ("a timer that it has set", "Check when this step sets its timers."),
    HoldReason.DUE_TIMER: (
        "windows or timers that are due, which each epoch leaves to the next one",
        "Set more partitions (--parallelism), larger windows, or fewer keys.",
    ),
    HoldReason.SIDE_INPUT: ("elements that wait for a side input", "Check the side input."),
    HoldReason.READ: (
        "reads of the state store that are not done",
        "Set more partitions (--parallelism), or use a state store that is nearer.",
    ),
}


def _holds_the_watermark(facts: JobFacts) -> Sentence | None:
    lags = [
        (introduced_us(facts, step), name)
        for name, step in facts.steps.items()
        if step.hold is not None and step.hold.holder in _HELD_BY
    ]
    lag_us, name = max(lags, default=(0, ""))
    if lag_us < _LAG_FROM_S * 1e6:
        return None
    step = facts.steps[name]
    assert step.hold is not None
    cause, remedy = _HELD_BY[step.hold.holder]
    counts = []
    if step.restrictions and step.hold.holder is HoldReason.RESTRICTION:
        counts.append(count_text(step.restrictions, "restriction"))
        if step.backlog:
            counts.append(f"backlog {step.backlog:,.0f}")
    if step.left:
        counts.append(f"{step.left:,} left")
    extra = f" ({', '.join(counts)})" if counts else ""
    return Sentence(
        text=f"{name} holds the watermark {_behind(lag_us)}, by {cause}{extra}.",
        tone=Tone.HELD,
        remedy=remedy,
        step=name,
    )


def _leaves_reads(facts: JobFacts) -> Sentence | None:
    left, name = max(
        ((step.left or 0, name) for name, step in facts.steps.items()), default=(0, "")
    )
    if not left:
        return None
    return Sentence(
        text=f"{name} waits for the state store: {left:,} elements and timers are left for the "
        "next epoch.",
        tone=Tone.HELD,
        remedy=_HELD_BY[HoldReason.READ][1],
        step=name,
    )


_SLOW_PARTS = {
    EpochPart.PLANNING: "This program plans the Spark jobs: check whether its machine is busy.",
    EpochPart.TASKS: "Check what these steps do, or set more partitions (--parallelism).",
    EpochPart.SPARK: "Tasks waited for free slots, were repeated, or moved very much data: look at "
    "the Spark UI.",
    EpochPart.COMMIT: "The checkpoint folder is slow: set a faster --checkpoint_dir.",
}


def _has_slow_epochs(facts: JobFacts) -> Sentence | None:
    status, latest = facts.status, facts.epochs[-_LATEST_EPOCHS:]
    if status is None or len(latest) < _LATEST_EPOCHS:
        return None
    took_us = sorted(epoch.took_us for epoch in latest)[len(latest) // 2]
    usual_us = max(facts.interval_us, status.budget_us, _MIN_EPOCH_US)
    if took_us < _SLOW_TIMES * usual_us:
        return None
    part = max(status.parts_us, key=lambda epoch: status.parts_us[epoch])
    share = status.parts_us[part] / max(1, status.took_us)
    where = f", in {status.slowest[0]}" if part is EpochPart.TASKS and status.slowest[0] else ""
    step, remedy = status.slowest[0], _SLOW_PARTS[part]
    if part is EpochPart.TASKS and (skew := skew_of_epoch(facts)) is not None:
        task, key = skew
        where = f", in {key.step}: in partition {task.partition}, {key_text(task, key)}"
        step, remedy = key.step, SKEW_REMEDY
    return Sentence(
        text=f"Epochs take {took_us / 1e6:.1f} s, which should take {usual_us / 1e6:.1f} s: "
        f"{share:.0%} of it is {part.value}{where}.",
        tone=Tone.HELD,
        remedy=remedy,
        step=step if step in facts.steps else "",
    )


def _was_warned(facts: JobFacts) -> Sentence | None:
    warned = _latest_warning(facts)
    return None if warned is None else Sentence(text=warned, tone=Tone.HELD)


def _has_a_slow_step(facts: JobFacts) -> Sentence | None:
    share, name = max(
        ((figures.busy_share, name) for name, figures in facts.figures.items()), default=(0.0, "")
    )
    if share < _SHARE_FROM or facts.has_ended:
        return None
    if facts.busy_cores < _BUSY_FROM:
        return None  # it waits for something else most of the time
    lag_us = _lag_us(facts)
    if lag_us is not None and lag_us < _LAG_FROM_S * 1e6:
        return None  # a stream that works much, and is not late
    return Sentence(
        text=f"{name} takes {share:.0%} of the time in which steps work{_segment_text(facts)}.",
        tone=Tone.BUSY,
        remedy="To be faster, make this step faster, or use more cores.",
        step=name,
    )


def _keeps_up(facts: JobFacts) -> Sentence | None:
    if facts.is_streaming is False:
        return Sentence(text=f"It runs{_segment_text(facts)}.", tone=Tone.GOOD)
    status = facts.status
    if status is None:
        return None
    drains = "It drains" if facts.state == job_facts.DRAINING else "It keeps up"
    lag_us = _lag_us(facts)
    if lag_us is None:
        return Sentence(text=f"{drains}.", tone=Tone.GOOD)
    return Sentence(text=f"{drains}: the watermark is {_behind(lag_us)}.", tone=Tone.GOOD)


RULES: tuple[Callable[[JobFacts], Sentence | None], ...] = (
    *(_has_ended, _waits_for_its_turn, lacks_storage, has_lost_executors, _waits_for_executors),
    *(_starts, was_restarted, _commits_nothing),
    *(_waits_for_side_inputs, _holds_the_watermark, _leaves_reads, _has_slow_epochs),
    *(has_skew, _was_warned, _has_a_slow_step, _keeps_up),
)
"""The rules, the most certain one first."""


def _lag_us(facts: JobFacts) -> int | None:
    """Return how far the earliest watermark is behind. None: there is none, or it is at an end."""
    name = None if facts.status is None else facts.status.last_step()
    if facts.status is None or name is None or facts.status.steps[name].output_us == MIN_US:
        return None
    return max(0, facts.status.clock_us - facts.status.steps[name].output_us)


def _behind(lag_us: int) -> str:
    return f"{duration_text(lag_us // 1_000_000)} behind"


def _segment_text(facts: JobFacts) -> str:
    running = facts.segment
    if running is None or facts.segments < 2:
        return ""
    return f", in segment {running.segment + 1} of {facts.segments}"


def _latest_warning(facts: JobFacts) -> str | None:
    """Return the runner's last warning, if it is new."""
    for line in reversed(facts.messages):
        if line.level != WARNING or not line.is_of_runner:
            continue
        at_s = unix_s(line.at)
        if at_s is None or facts.now_s - at_s > _WARNED_WITHIN_S:
            return None
        return line.text
    return None


def unix_s(at: str) -> float | None:
    """Return a time in RFC 3339 as Unix time, in seconds. None: it is no such time.

    Example:
        >>> unix_s("1970-01-01T00:01:00Z"), unix_s("1970-01-01T00:01:00.5+00:00"), unix_s("")
        (60.0, 60.5, None)
    """
    text = at.replace("Z", "+00:00")
    head, dot, tail = text.partition(".")
    if dot:  # Python 3.10 reads three or six digits only, and SDKs write up to nine
        digits = tail[: len(tail) - len(tail.lstrip("0123456789"))]
        text = f"{head}.{digits[:6]:0<6}{tail[len(digits) :]}"
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
