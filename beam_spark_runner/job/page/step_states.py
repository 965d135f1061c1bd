"""What each step of a job does now, in one word."""

from enum import Enum

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.observing import job_facts
from beam_spark_runner.observing.epoch_status import HoldReason
from beam_spark_runner.observing.held_back import failing_step, introduced_us
from beam_spark_runner.observing.job_facts import JobFacts
from beam_spark_runner.observing.step_graph import StepNode

_HELD_FROM_US = 30_000_000
# These hold a watermark as they should, for as long as it arrives.
_USUAL = (HoldReason.WINDOW, HoldReason.COMMIT, HoldReason.ORDER)


class StepState(Enum):
    """The state of a step. The value is the word for people, and a class of the style sheet."""

    FAILED = "failed"
    HOLDING = "holding"  # it holds the watermark
    WAITING = "waiting"  # for a side input, or for a state store
    RUNNING = "running"
    IDLE = "idle"
    DONE = "done"


IMPORTANCE = tuple(StepState)
"""The most important state first: a composite has that of its most important step."""


def step_state(facts: JobFacts, node: StepNode) -> StepState:
    """Return the state of a step."""
    if facts.state == job_facts.FAILED and failing_step(facts) == node.name:
        return StepState.FAILED
    if facts.has_ended:
        ended_well = facts.state in (job_facts.DONE, job_facts.DRAINED)
        return StepState.DONE if ended_well else StepState.IDLE
    return _in_epochs(facts, node) if facts.is_streaming else _in_batch(facts, node)


def _in_epochs(facts: JobFacts, node: StepNode) -> StepState:
    status, figures = facts.steps.get(node.name), facts.figures.get(node.name)
    is_running = figures is not None and bool(figures.per_second)
    if status is not None:
        if status.input_us >= MAX_US and status.output_us >= MAX_US:
            return StepState.DONE
        is_late = introduced_us(facts, status) >= _HELD_FROM_US
        if status.left or (status.blocked is not None and is_late):
            return StepState.WAITING
        if is_late and status.hold is not None and status.hold.holder not in _USUAL:
            return StepState.HOLDING
        is_running = is_running or bool(status.restrictions)
    return StepState.RUNNING if is_running else StepState.IDLE


def _in_batch(facts: JobFacts, node: StepNode) -> StepState:
    if node.segment is None:
        return StepState.IDLE
    for times in facts.segment_times:
        if times.segment == node.segment:
            return StepState.RUNNING if times.ended_s is None else StepState.DONE
    return StepState.IDLE


def most_important(states: list[StepState]) -> StepState:
    """Return the state of a composite.

    Example:
        >>> most_important([StepState.DONE, StepState.RUNNING]).value
        'running'
    """
    return min(states, key=IMPORTANCE.index)
