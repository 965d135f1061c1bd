"""Which steps are named when Spark gives a job up."""

from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.driving.segment_job import SegmentJobs
from beam_spark_runner.driving.segment_store import ForgetfulStore
from beam_spark_runner.plan.model import Level, Segment, Stage
from beam_spark_runner.spark import pyspark_internals
from beam_spark_runner.spark.driver.cluster import SparkCluster, SparkClusterSettings

_CRASH = Exception(
    "Job aborted due to stage failure: Task 0 in stage 4.0 failed 1 times, most recent failure: "
    "Lost task 0.0 in stage 4.0 (TID 9): org.apache.spark.SparkException: Python worker exited "
    "unexpectedly (crashed)"
)


def _segment(number: int, *stages: int) -> Any:
    made: Any = Segment(
        id=number,  # type: ignore[arg-type]
        first_level=0,
        levels=tuple(Level(has_exchange=bool(stage), stages=(stage,)) for stage in stages),  # type: ignore[arg-type]
        reads={},
        writes={},
    )
    return made


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> SegmentJobs:
    """Return the jobs of a plan. Of Spark's, number 7 has stages 0 and 1, number 8 has 4."""
    stages_of = {7: [0, 1], 8: [4]}
    tracker = SimpleNamespace(
        getJobIdsForTag=lambda _: [7, 8],
        getJobInfo=lambda job: SimpleNamespace(
            get=lambda: SimpleNamespace(stageIds=lambda: stages_of[job])
        ),
    )
    context = SimpleNamespace(statusTracker=lambda: tracker)
    monkeypatch.setattr(pyspark_internals, "scala_context", lambda _: context)
    stages = {
        number: Stage(
            id=number,  # type: ignore[arg-type]
            name=f"step {number}",
            transforms=(),
            input="x",  # type: ignore[arg-type]
            outputs=(),
            environment=None,
        )
        for number in range(3)
    }
    plan: Any = SimpleNamespace(stages=stages, graph=None)
    nothing: Any = None
    where = SparkClusterSettings(
        spark=SimpleNamespace(sparkContext=None),  # type: ignore[arg-type]
        is_connect=False,
        job_id="job",
        materialiser=nothing,
        folder=None,
        share=nothing,
        scope=nothing,
        check_cancelled=nothing,
    )
    return SegmentJobs(plan, nothing, SparkCluster(where), nothing, ForgetfulStore())


def test_the_steps_of_the_stage_that_failed(jobs: SegmentJobs) -> None:
    jobs._last = SimpleNamespace(levels=range(2), in_one_task=False)  # type: ignore[assignment]
    assert "step 1" in jobs.steps_blamed_for(_segment(0, 0, 1), _CRASH)


def test_a_job_that_gathers_side_inputs_is_not_the_one_before(jobs: SegmentJobs) -> None:
    """The segment that comes next has fewer levels."""
    jobs._last = SimpleNamespace(levels=range(2), in_one_task=False)  # type: ignore[assignment]
    jobs.forget_last()
    assert "step 2" in jobs.steps_blamed_for(_segment(1, 2), _CRASH)


@pytest.mark.parametrize(
    ("stack", "title"),
    [
        ('File "task.py", line 9 in beam_level_1\n', "step 1"),
        ("", "step 0 → step 1 → step 2"),  # the worker was killed
    ],
)
def test_the_level_that_one_task_ran(jobs: SegmentJobs, stack: str, title: str) -> None:
    jobs._last = SimpleNamespace(levels=range(3), in_one_task=True)  # type: ignore[assignment]
    error = Exception(f"{_CRASH}: Fatal Python error: Segmentation fault\n{stack}")
    assert jobs.steps_blamed_for(_segment(0, 0, 1, 2), error) == title
