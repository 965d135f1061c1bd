"""Facts of jobs, for tests of the sentence."""

from datetime import datetime, timezone
from typing import Any

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.observing.epoch_history import PastEpoch
from beam_spark_runner.observing.epoch_status import (
    EpochPart,
    EpochStatus,
    Hold,
    HoldReason,
    StepStatus,
)
from beam_spark_runner.observing.job_facts import JobFacts, StepFigures
from beam_spark_runner.observing.level_works import LevelWork
from beam_spark_runner.observing.message_lines import INFO, WARNING, message_line
from beam_spark_runner.observing.step_graph import StepGraph, StepNode
from beam_spark_runner.observing.troubles import LostExecutor, Trouble, TroubleKind
from beam_spark_runner.scheduling.task_work import KeyRows, TaskWork

NOW_S = 10_000.0
NOW_US = 10_000_000_000
GRAPH = StepGraph(
    tuple(
        StepNode(id=name, name=name, kind="ParDo", segment=0, outputs=())
        for name in ("Read/Process", "Sum", "Write/Do", "Write/Do/Part")
    )
)


def facts(**fields: Any) -> JobFacts:
    given = {
        "states": (("STARTING", NOW_S - 100), (fields.get("state", "RUNNING"), NOW_S - 90)),
        "graph": GRAPH,
        "now_s": NOW_S,
        **fields,
    }
    return JobFacts(job_id="1", **given)


def streaming(*, status: EpochStatus | None = None, **fields: Any) -> JobFacts:
    status = status or epoch()
    return facts(
        **{
            "is_streaming": True,
            "interval_us": 1_000_000,
            "status": status,
            "committed_s": NOW_S - 1,
            **fields,
        }
    )


def epoch(**steps: StepStatus) -> EpochStatus:
    return EpochStatus(
        epoch=7,
        clock_us=NOW_US,
        took_us=4_000_000,
        parts_us={EpochPart.TASKS: 3_000_000, EpochPart.COMMIT: 1_000_000},
        slowest=("Sum", 2_500_000),
        steps={name.replace("_", "/"): step for name, step in steps.items()},
    )


def step(lag_s: float, hold: HoldReason | None = None, **fields: Any) -> StepStatus:
    output_us = NOW_US - round(lag_s * 1e6)
    return StepStatus(
        input_us=fields.pop("input_us", MAX_US),
        output_us=output_us,
        hold=None if hold is None else Hold(hold, output_us),
        **fields,
    )


SLOW = {"Sum": StepFigures(busy_share=1.0)}


def skewed(*, rows: int = 6_000, is_done: bool = False) -> LevelWork:
    task = TaskWork(
        level=1,
        partition=3,
        spent_s=70.0,
        rows=4_000,
        largest=KeyRows(step="Sum", text="'a'", rows=3_600),
        is_done=is_done,
    )
    return LevelWork(level=1, tasks=5, rows=rows, median_s=1.0, slowest=(task,))


def trouble(kind: TroubleKind, text: str, ago_s: float = 10) -> Trouble:
    return Trouble(kind=kind, text=text, since_s=NOW_S - ago_s - 30, at_s=NOW_S - ago_s)


def lost(executor: str, ago_s: float, reason: str) -> LostExecutor:
    return LostExecutor(executor=executor, at_s=NOW_S - ago_s, reason=reason)


def warned(text: str, ago_s: float = 10) -> Any:
    at = datetime.fromtimestamp(NOW_S - ago_s, timezone.utc).isoformat()
    return (message_line(at, WARNING, text), message_line(at, INFO, "later"))


EPOCHS = tuple(
    PastEpoch(epoch=number, clock_us=0, parts_us=(0, 3_000_000, 0, 1_000_000))
    for number in range(5)
)
