"""What is prepared without running code of whoever wrote the pipeline."""

import base64
import bz2
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import Coder, registry
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.internal import pickler
from apache_beam.internal.cloudpickle import cloudpickle as beams_cloudpickle
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import NonMergingWindowFn, TimestampedValue

from beam_spark_runner.core.errors import InvalidPipelineError, OptionsError
from beam_spark_runner.harness.main_classes import ALL
from beam_spark_runner.job.prepare.prepare import PreparedJob, prepare
from beam_spark_runner.options import RunnerConfig
from tests.unit.portable.pipelines import proto_of


class Point:
    pass


class PointCoder(Coder):  # type: ignore[misc]
    def encode(self, value: Any) -> bytes:
        return b""

    def is_deterministic(self) -> bool:
        return True


class Odd(NonMergingWindowFn):  # type: ignore[misc]
    def assign(self, context: Any) -> list[Any]:
        return []

    def get_window_coder(self) -> Coder:
        return IntervalWindowCoder()


def keyed(p: beam.Pipeline) -> None:
    points = (
        p | beam.Impulse() | beam.Map(lambda _: (Point(), 1)).with_output_types(tuple[Point, int])
    )
    points | beam.GroupByKey() | beam.Map(print)
    points | "sum" >> beam.CombinePerKey(sum) | "print" >> beam.Map(print)


def windowed(p: beam.Pipeline) -> None:
    values = p | beam.Create([1]) | beam.Map(lambda n: TimestampedValue(("k", n), n))
    values | beam.WindowInto(Odd()) | beam.GroupByKey() | beam.Map(print)


def written(p: beam.Pipeline) -> None:
    p | beam.Create(["a"]) | beam.io.WriteToText(str(Path("somewhere") / "out"))


class Packed(beam.PTransform):  # type: ignore[misc]
    """Two combiners, which Beam packs into one if it is asked to."""

    def annotations(self) -> dict[str, bytes]:
        return {python_urns.APPLY_COMBINER_PACKING: b""}

    def expand(self, pairs: Any) -> None:
        pairs | "sum" >> beam.CombinePerKey(sum) | "sums" >> beam.Map(print)
        pairs | "max" >> beam.CombinePerKey(max) | "maxima" >> beam.Map(print)


def packed(p: beam.Pipeline) -> None:
    p | beam.Create([("a", 1)]) | Packed()


def prepared(pipeline: beam_runner_api_pb2.Pipeline, *, was_built_here: bool) -> PreparedJob:
    return prepare(
        pipeline,
        PipelineOptions([]),
        RunnerConfig(),
        lambda _: "",
        job_id="job",
        all_options=None if was_built_here else {},
    )


def ticking(p: beam.Pipeline) -> None:
    p | PeriodicImpulse() | beam.Map(print)


@pytest.mark.parametrize(
    ("flag", "option"),
    [("--savepoint_path=/saved", "savepoint_path"), ("--restart=resume", "restart")],
)
def test_a_batch_does_not_continue_from_stored_data(flag: str, option: str) -> None:
    with pytest.raises(OptionsError, match=f"--{option}: the pipeline runs in batch"):
        _prepared_with(written, flag)
    assert _prepared_with(written, flag, "--streaming").plan.is_streaming


def test_draining_a_savepoint_streams() -> None:
    assert not _prepared_with(ticking, "--drain").plan.is_streaming
    assert _prepared_with(ticking, "--drain", "--savepoint_path=/saved").plan.is_streaming


def _prepared_with(build: Callable[[beam.Pipeline], None], *flags: str) -> PreparedJob:
    options = PipelineOptions([*flags])
    config = RunnerConfig.from_options(options)
    return prepare(proto_of(build), options, config, lambda _: "", job_id="job")


@pytest.mark.parametrize(
    ("flags", "sent"),
    [
        ([], {"Own"}),
        (["--pickle_library=dill"], {ALL}),
        (["--pickle_library=dill", "--save_main_session"], set()),
    ],
    ids=["cloudpickle", "dill", "dill with the whole session"],
)
def test_what_is_sent_of_the_main_module(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], sent: set[str]
) -> None:
    program = ModuleType("__main__")
    exec("class Own: ...\nrate, other = 'its rate', 'another'", vars(program))
    monkeypatch.setitem(sys.modules, "__main__", program)
    step = eval("lambda _: rate", vars(program))
    job = _prepared_with(lambda p: p | beam.Impulse() | beam.Map(step), *flags)
    assert job.main_classes.keys() == sent
    if ALL in sent:
        coded = job.main_classes[ALL]
        assert isinstance(coded, bytes)
        text = bz2.decompress(base64.b64decode(coded))
        assert b"its rate" in text
        assert b"another" not in text


@pytest.fixture(autouse=True)
def point_coder() -> None:
    registry.register_coder(Point, PointCoder)


@pytest.mark.parametrize("build", [keyed, windowed, written, packed])
def test_nothing_is_unpickled_unless_the_pipeline_was_built_here(
    build: Callable[[beam.Pipeline], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = proto_of(build)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("this is code of whoever wrote the pipeline")

    for module in (pickler, pickle, beams_cloudpickle):
        monkeypatch.setattr(module, "loads", refuse)
    job = prepared(pipeline, was_built_here=False)
    assert job.plan.stages
    assert not job.was_built_here


def test_key_coders_of_a_pipeline_that_was_built_here_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = proto_of(keyed), proto_of(keyed)
    assert prepared(first, was_built_here=True).was_built_here
    monkeypatch.setattr(PointCoder, "is_deterministic", lambda _: False)
    with pytest.raises(InvalidPipelineError, match="not deterministic"):
        prepared(second, was_built_here=True)


def test_each_start_of_a_job_has_an_id_that_no_other_has() -> None:
    job = _prepared_with(keyed)
    assert job.for_start(1) is job
    # A copy of a server's folder has the same jobs and starts.
    ids = {job.for_start(number).job_id for number in (2, 2, 3)}
    assert sorted(id_.rpartition("-")[0] for id_ in ids) == ["job-2", "job-2", "job-3"]
