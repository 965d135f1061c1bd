"""What a job shows while it runs, and what remains after its end."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics.monitoring_infos import create_monitoring_info
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner.driving.run_context import RunMetrics
from beam_spark_runner.job.prepare.prepare import PreparedJob, prepare
from beam_spark_runner.job.watching.progress_line import Parts
from beam_spark_runner.job.watching.progress_lines import JobProgress
from beam_spark_runner.options import RunnerConfig


class Shown:
    """A line that remembers what it was told."""

    def __init__(self) -> None:
        self.parts: Callable[[], Parts] = lambda: ()
        self.picture: Callable[[], str] | None = None
        self.said: list[str] = []
        self.is_closed = False

    def show(self, parts: Callable[[], Parts], picture: Callable[[], str] | None = None) -> None:
        self.parts, self.picture = parts, picture

    def say(self, *parts: str) -> None:
        self.said.append(" · ".join(parts))

    def took_s(self) -> float:
        return 86.0

    def close(self) -> None:
        self.parts, self.is_closed = lambda: ["closed"], True


class Session:
    """A session of a Spark that tells nothing of its jobs."""

    spark, is_connect = object(), True


def prepared(*flags: str, build: Callable[[beam.Pipeline], Any]) -> PreparedJob:
    pipeline, options = beam.Pipeline(), PipelineOptions(flags)
    build(pipeline)
    config = RunnerConfig.from_options(options)
    return prepare(pipeline.to_runner_api(), options, config, lambda _: "", job_id="job")


def words(pipeline: beam.Pipeline) -> Any:
    lines = pipeline | "Words" >> beam.io.ReadFromText("words", validate=False)
    return lines | "Save" >> beam.io.WriteToText("out/words")


def counted(job: PreparedJob, counts: dict[str, int]) -> RunMetrics:
    """Return metrics with the number of elements that a step has emitted, by its name's end."""
    infos = [
        create_monitoring_info(
            "beam:metric:element_count:v1",
            "beam:metrics:sum_int64:v1",
            number.to_bytes(1, "big"),
            {"PCOLLECTION": str(id_)},
        ).SerializeToString()
        for name, number in counts.items()
        for step in job.plan.graph.transforms.values()
        if step.name.endswith(name)
        for id_ in step.outputs.values()
    ]
    tally = RunMetrics()
    tally.accepted[job.plan.segments[0].id] = tuple(infos)
    return tally


def test_a_batch_pipeline_from_its_beginning_to_its_end() -> None:
    job, line = prepared(build=words), Shown()
    progress = JobProgress(line, job, counted(job, {"/Process": 90, "/FinalizeWrite": 2}))
    begin: Any = progress.begin
    begin(Session(), None, deferred=lambda: 3, attempted=tuple)
    assert line.parts() == ["starting"]
    assert line.picture is not None
    assert "linear-gradient" not in line.picture()
    progress.begin_segment(job.plan.segments[0].id)
    assert line.parts()[0] == "▕░░░░░░░░░░▏ 0%"
    assert line.parts()[2:] == ["3 deferred"]
    assert line.picture().count("#dcfce7 0%") == 1
    progress.end("DONE", None, is_all_removed=True)
    assert line.parts() == ["closed"]
    assert line.picture().count("#dcfce7 100%") == len(job.plan.segments)
    assert line.said == ["DONE in 1:26 · 90 elements read · out/words-*-of-00002 (2 files)"]


@pytest.mark.parametrize(
    ("state", "keeps_nothing", "said"),
    [
        ("CANCELLED", True, "CANCELLED after 1:26, temporary files are removed"),
        ("CANCELLED", False, "CANCELLED after 1:26"),
        ("FAILED", True, "FAILED after 1:26"),
        ("DRAINED", False, "DRAINED after epoch 30"),
    ],
)
def test_the_line_says_where_a_stream_continues_and_ends(
    state: str, keeps_nothing: bool, said: str
) -> None:
    def build(pipeline: beam.Pipeline) -> Any:
        return pipeline | beam.Create([1])

    job = prepared("--streaming", "--checkpoint_dir=/there", build=build)
    line = Shown()
    progress = JobProgress(line, job, RunMetrics())
    progress.show_continued("epoch 24")
    progress.end(state, 30, is_all_removed=keeps_nothing)
    assert line.said == ["continues after epoch 24 from /there", said]


def test_a_pipeline_of_another_process_is_not_asked_for_its_sinks() -> None:
    job, line = replace(prepared(build=words), was_built_here=False), Shown()
    JobProgress(line, job, counted(job, {"/FinalizeWrite": 2})).end(
        "DONE", None, is_all_removed=True
    )
    assert line.said == ["DONE in 1:26"]
