"""Runs of closed functions: the same results, counts and errors as step by step."""

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability.api import metrics_pb2
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils.windowed_value import WindowedValue
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.core.step_chunks import StepChunks
from beam_spark_runner.harness.beam.embedded_stage import EmbeddedStage
from beam_spark_runner.harness.beam.fused_run import FusedRun
from beam_spark_runner.harness.beam.step_loops import Mapped
from beam_spark_runner.harness.failures import failure_of
from beam_spark_runner.harness.values.constants import Kind
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.portable.pipeline import from_proto
from tests.examples import examples
from tests.unit.harness.beam.step_outputs import Output, origin
from tests.unit.harness.beam.test_chunks_against_beam import WITHOUT_SHRINKING, Written
from tests.unit.portable.pipelines import one_stage, output_of, proto_of

_ELEMENT = re.compile("Element: .*")
_COUNT = "beam:metric:element_count:v1"


def _raise_for_77(value: Any) -> Any:
    return value if value != 77 else 1 // 0


_STEPS: Sequence[Callable[[], beam.PTransform]] = (
    lambda: beam.Map(lambda n: n + 1 if isinstance(n, int) else n),
    lambda: beam.Map(lambda n: (n, 1)),
    lambda: beam.Map(lambda n, more: (more, n), "more"),
    lambda: beam.Map(lambda n: (n, n)) | beam.MapTuple(lambda one, other: [one, other]),
    lambda: beam.Map(lambda n: [n, {"n": n}]),
    lambda: beam.Map(lambda n: TimestampedValue(n, 5)),
    lambda: beam.Map(_raise_for_77),
    lambda: beam.Map(lambda n: iter([n]).__next__() if n != 78 else next(iter([]))),
    lambda: beam.Filter(lambda n: n != 3),
)
_RAISING = (6, 7)


def _outcome(steps: list[int], pushes: list[list[int]], step_chunks: StepChunks) -> Any:
    """Return the results and the counts of all collections, or the step and text of the error."""

    def build(p: beam.Pipeline) -> None:
        collection = p | "source" >> beam.Impulse()
        for number, step in enumerate(steps):
            collection = collection | f"step {number}" >> _STEPS[step]()

    graph = from_proto(proto_of(build))
    names = [each.name for each in graph.transforms.values() if each.name != "source"]
    last = [*graph.transforms.values()][-1]
    plan = one_stage(
        graph, names, input_=output_of(graph, "source"), outputs=[*last.outputs.values()]
    )
    stage = EmbeddedStage("run", describe(plan, StageId(0)), step_chunks=step_chunks)
    try:
        written = {collection: Written() for collection in stage.output_coders}
        bundle = stage.start_bundle(written, {})
        for values in pushes:
            origins = [WindowedValue(None, n, (GlobalWindow(),)) for n in range(len(values))]
            bundle.push([*values], origins)
            bundle.flush()
        infos = map(metrics_pb2.MonitoringInfo.FromString, bundle.finish().monitoring_infos)
    except Exception as error:
        failure = failure_of(error, "stage")
        return failure.step, failure.cause, _ELEMENT.findall(failure.traceback_text)
    finally:
        stage.close()
    counts = {(info.labels["PCOLLECTION"], info.payload) for info in infos if info.urn == _COUNT}
    return [each.elements for each in written.values()], counts


@given(
    steps=st.lists(st.integers(0, len(_STEPS) - 1), min_size=1, max_size=6),
    sizes=st.lists(st.integers(1, 80), min_size=1, max_size=40),
)
@settings(max_examples=examples(40), phases=WITHOUT_SHRINKING)
def test_a_run_does_what_its_steps_do(steps: list[int], sizes: list[int]) -> None:
    pushes = [[*range(size)] for size in sizes]
    found, expected = (_outcome(steps, pushes, chunks) for chunks in ("auto", "off"))
    if len(expected) == 3 and sum(step in _RAISING for step in steps) > 1:
        assert len(found) == 3  # which of them raises first depends on the chunks
    else:
        assert found == expected


def test_most_chunks_pass_all_steps_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    process = FusedRun.process

    def counting(self: FusedRun, *arguments: Any) -> int:
        done.append(process(self, *arguments))
        return done[-1]

    monkeypatch.setattr(FusedRun, "process", counting)
    pushes = [[*range(50)]] * 64
    (results,), _ = _outcome([0, 0, 0], pushes, "auto")
    assert len(results) == 50 * 64
    assert done.count(50) > 50
    assert 4 <= done.count(0) < 14


class _InterruptedError(Exception):
    """Stands for what another thread raises in a task that is to end."""

    _tagged_with_step = True


def test_an_interrupted_run_is_not_begun_again() -> None:
    """It is interrupted once: step by step, the same code would run to its end."""

    def interrupted(value: Any) -> Any:
        raise _InterruptedError

    steps = [Mapped(interrupted), Mapped(interrupted)]
    for step in steps:
        step.limit = 100
    run = FusedRun(steps, [lambda count: None], [contextlib.nullcontext()] * 2, Output())
    with pytest.raises(_InterruptedError):
        run.process([1] * 50, [origin(1)] * 50, Kind.PLAIN)


def test_functions_that_take_long_are_not_run_at_once() -> None:
    """The time of a chunk counts for one of its steps only."""
    steps = [Mapped(lambda n: n), Mapped(lambda n: sum(range(2_000)))]
    for step in steps:
        step.limit = 100
    run = FusedRun(steps, [lambda count: None], [contextlib.nullcontext()] * 2, Output())
    done = [run.process([1] * 50, [origin(1)] * 50, Kind.PLAIN) for _ in range(48)]
    assert done.count(50) == 3
    assert done.count(0) == 45
