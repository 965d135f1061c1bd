"""The rule for the sentence about a job that waits for the elements of one key."""

from beam_spark_runner.observing.job_facts import JobFacts
from beam_spark_runner.observing.level_works import LevelWork
from beam_spark_runner.observing.sentence import Sentence, Tone
from beam_spark_runner.observing.stream_line import duration_text
from beam_spark_runner.scheduling.task_work import KeyRows, TaskWork

_MIN_TIME_S = 10.0
_MIN_SHARE = 0.5  # of the rows of its task, to be what the task takes its time for
_TIMES = 2.0  # more rows than the mean of its level
SKEW_REMEDY = (
    "The elements of one key are processed in one task. Use CombinePerKey in place of GroupByKey "
    "(with_hot_key_fanout, if needed), or a key that spreads them, such as the key with a number."
)


def has_skew(facts: JobFacts) -> Sentence | None:
    """Return the sentence about a batch job in which a running task has most rows of one key."""
    if facts.is_streaming is not False or facts.has_ended:
        return None
    for work in facts.level_works:
        for task in work.slowest:
            key = skewed_key(work, task)
            if task.is_done or task.spent_s < _MIN_TIME_S or key is None:
                continue
            return Sentence(
                text=f"{key.step} has waited {duration_text(int(task.spent_s))} for partition "
                f"{task.partition}: {key_text(task, key)}.",
                tone=Tone.HELD,
                remedy=SKEW_REMEDY,
                step=key.step,
            )
    return None


def key_text(task: TaskWork, key: KeyRows) -> str:
    """Return which part of a task's rows have a key."""
    share = f"{key.rows / max(1, task.rows):.0%}"
    return f"{share} of its {task.rows:,} elements have the key {key.text}"


def skewed_key(work: LevelWork, task: TaskWork) -> KeyRows | None:
    """Return the key that makes a task slow. None: there is none."""
    key = task.largest
    if key is None or key.rows < _MIN_SHARE * task.rows:
        return None
    is_larger = work.tasks == 1 or task.rows >= _TIMES * work.rows / work.tasks
    return key if is_larger else None


def skew_of_epoch(facts: JobFacts) -> tuple[TaskWork, KeyRows] | None:
    """Return the slowest task of the last epoch, with a key that most of its rows have."""
    slowest = max(facts.level_works, key=lambda work: work.slowest[0].spent_s, default=None)
    if slowest is None:
        return None
    task = slowest.slowest[0]
    key = skewed_key(slowest, task)
    return None if key is None else (task, key)
