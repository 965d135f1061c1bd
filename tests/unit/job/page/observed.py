"""A job as the page sees it, for tests: a stream in which a step holds the watermark."""

from typing import Any

from apache_beam.runners.runner import PipelineState

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.job.page.shown_job import ShownJob
from beam_spark_runner.job.watching.record import JobRecord
from beam_spark_runner.observing.epoch_history import PastEpoch
from beam_spark_runner.observing.epoch_status import (
    EpochPart,
    EpochStatus,
    Hold,
    HoldReason,
    LevelState,
    StepStatus,
)
from beam_spark_runner.observing.job_facts import JobFacts, StepFigures
from beam_spark_runner.observing.level_works import LevelWork
from beam_spark_runner.observing.made_savepoints import MadeSavepoint
from beam_spark_runner.observing.message_lines import ERROR, INFO, WARNING, message_line
from beam_spark_runner.observing.step_graph import EdgeKind, StepEdge, StepGraph, StepNode
from beam_spark_runner.scheduling.task_work import KeyRows, TaskWork

EVIL = "<script>alert(1)</script>"
AT = "2026-01-01T10:00:00Z"
NOW_S = 1_767_261_600.0
NOW_US = round(NOW_S * 1e6)


def node(name: str, output: str, kind: str = "ParDo", segment: int = 0) -> StepNode:
    return StepNode(id=f"id of {name}", name=name, kind=kind, segment=segment, outputs=(output,))


def edge(producer: str, consumer: str, collection: str, kind: EdgeKind = EdgeKind.POINTWISE) -> Any:
    return StepEdge(
        producer=f"id of {producer}",
        consumer=f"id of {consumer}",
        collection=collection,
        kind=kind,
    )


GRAPH = StepGraph(
    (
        node("Read/Impulse", "i", "impulse"),
        node("Read/Process", "r"),
        node("Rates", "s"),
        node(EVIL, "e"),
        node("Sum/Group", "g", "group by key"),
        node("Sum/Merge", "m"),
    ),
    (
        edge("Read/Impulse", "Read/Process", "i"),
        edge("Read/Process", EVIL, "r"),
        edge("Rates", EVIL, "s", EdgeKind.SIDE_INPUT),
        edge(EVIL, "Sum/Group", "e", EdgeKind.EXCHANGE),
        edge("Sum/Group", "Sum/Merge", "g"),
    ),
)


HOT = TaskWork(
    level=1,
    partition=3,
    spent_s=12.5,
    rows=1_000,
    largest=KeyRows(step="Sum/Group", text=f"'{EVIL}'", rows=900),
    is_done=False,
)


def stream(job_id: str = "7", **fields: Any) -> JobFacts:
    held = StepStatus(
        input_us=MAX_US,
        output_us=NOW_US - 200_000_000,
        hold=Hold(HoldReason.RESTRICTION, NOW_US - 200_000_000),
        restrictions=2,
        backlog=float("inf"),
    )
    given = {
        "name": f"orders {EVIL}",
        "state": "RUNNING",
        "states": (("STARTING", NOW_S - 65), ("RUNNING", NOW_S - 60)),
        "now_s": NOW_S,
        "is_streaming": True,
        "interval_us": 1_000_000,
        "graph": GRAPH,
        "figures": {
            "Read/Process": StepFigures(taken=1, emitted=1_200, per_second=12.5, busy_ms=900),
            EVIL: StepFigures(
                taken=1_200, emitted=1_200, metrics=((f"{EVIL}:seen", "7"),), busy_share=0.3
            ),
        },
        "collections": {"i": 1, "r": 1_200, "e": 1_200},
        "rates": {"r": 12.5},
        "status": EpochStatus(
            epoch=17,
            clock_us=NOW_US,
            parts_us={EpochPart.TASKS: 200_000},
            steps={"Read/Process": held, EVIL: StepStatus(input_us=NOW_US, output_us=NOW_US)},
            stored_bytes={EVIL: 8_192},
            stored_state={
                EVIL: LevelState(records=1_234, next_event_us=0, next_clock_us=NOW_US + 3_000_000)
            },
        ),
        "committed_s": NOW_S - 2,
        "epochs": (PastEpoch(epoch=17, clock_us=NOW_US, parts_us=(1, 200_000, 3, 4)),),
        "samples": {"e": (f"(1, '{EVIL}')", "newest")},
        "level_works": (
            LevelWork(level=1, steps=EVIL, tasks=4, rows=1_300, median_s=0.5, slowest=(HOT,)),
        ),
        "savepoints": (MadeSavepoint(f"/there/{EVIL}", 15, 4_096, NOW_S - 65),),
        "read_per_second": (0.0, 12.5, 25.0),
        "read": 1_200,
        "messages": (
            message_line(AT, WARNING, f"{EVIL}: a group of keys has 1 GB; use smaller keys"),
            message_line(AT, WARNING, f"{EVIL}: a group of keys has 2 GB; use smaller keys"),
            message_line(AT, INFO, f"parsed {EVIL} [{EVIL}, worker 3]"),
            message_line(AT, WARNING, f"ERROR: no {EVIL} [Sum/Merge, worker 1]\nTraceback {EVIL}"),
        ),
        "plan_text": f"Beam stage 0: {EVIL}",
        "options": (("job_name", EVIL),),
        **fields,
    }
    return JobFacts(job_id=job_id, **given)


def failed(job_id: str = "6") -> JobFacts:
    return stream(
        job_id,
        name="import",
        state="FAILED",
        states=(("STARTING", NOW_S - 65), ("FAILED", NOW_S - 60)),
        is_streaming=False,
        status=None,
        error=f"{EVIL}: ValueError: bad {EVIL}\n\nTraceback",
        messages=(message_line(AT, ERROR, f"{EVIL}: ValueError: bad {EVIL}\n\nTraceback {EVIL}"),),
    )


class FixedJobs:
    """Stands in for ``ObservedJobs``.

    Attributes:
        called: The actions that were asked for.
    """

    def __init__(self, *facts: JobFacts) -> None:
        self.facts = {each.job_id: each for each in facts}
        self.called: list[str] = []
        self.error: Exception | None = None

    def all_facts(self) -> list[JobFacts]:
        return [*self.facts.values()]

    def facts_of(self, job_id: str) -> JobFacts | None:
        return self.facts.get(job_id)

    def jobs_by_id(self) -> dict[str, ShownJob]:
        return {job_id: self._shown(job_id) for job_id in self.facts}

    def _shown(self, job_id: str) -> ShownJob:
        record = JobRecord({}, job_id)
        record.change_state(PipelineState.STARTING)
        record.messages.inform(f"hello {EVIL}")
        return ShownJob(
            job_id=job_id,
            name=job_id,
            record=record,
            job=None,
            cancel=lambda: self._call(f"cancel {job_id}"),
            drain=lambda: self._call(f"drain {job_id}"),
            memory=dict,
            stacks=lambda: {f"host {EVIL}": f"in {EVIL}", "other": None},
            save=lambda path: self._call(f"save {job_id} {path}"),
        )

    def _call(self, what: str) -> int:
        if self.error is not None:
            raise self.error
        self.called.append(what)
        return 17
