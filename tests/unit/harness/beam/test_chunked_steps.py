"""Which steps process chunks."""

from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.worker.operations import DoOperation

from beam_spark_runner.core.ids import PCollectionId, StageId
from beam_spark_runner.harness.beam.chunks import ChunkedParDo
from beam_spark_runner.harness.beam.embedded_stage import EmbeddedStage
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.portable.pipeline import from_proto
from tests.unit.portable.pipelines import one_stage, output_of, proto_of


class WithDefault(beam.DoFn):  # type: ignore[misc]
    def process(self, value: bytes, separator: bytes = b"/") -> Iterator[bytes]:
        yield from value.split(separator)


class WithTime(beam.DoFn):  # type: ignore[misc]
    def process(self, value: bytes, at: Any = beam.DoFn.TimestampParam) -> Iterator[Any]:
        yield value, at


class WithFinalizer(beam.DoFn):  # type: ignore[misc]
    def process(self, value: bytes, end: Any = beam.DoFn.BundleFinalizerParam) -> Iterator[Any]:
        yield value


class WithKey(beam.DoFn):  # type: ignore[misc]
    def process(self, value: Any, key: Any = beam.DoFn.KeyParam) -> Iterator[Any]:
        yield key


class WithDefaultAndTime(beam.DoFn):  # type: ignore[misc]
    def process(
        self, value: bytes, separator: bytes = b"/", at: Any = beam.DoFn.TimestampParam
    ) -> Iterator[Any]:
        yield value.split(separator), at


def parts(value: bytes, separator: bytes = b"/") -> list[bytes]:
    return value.split(separator)


def _operation(step: beam.PTransform) -> Any:
    def build(p: beam.Pipeline) -> None:
        _ = p | "source" >> beam.Impulse() | "step" >> step

    graph = from_proto(proto_of(build))
    plan = one_stage(
        graph,
        ["step"],
        input_=output_of(graph, "source"),
        outputs=[PCollectionId(output_of(graph, "step"))],
    )
    stage = EmbeddedStage("steps", describe(plan, StageId(0)))
    try:
        operations = stage._steps.processor.ops.values()
        return next(each for each in operations if isinstance(each, DoOperation))
    finally:
        stage.close()


@pytest.mark.parametrize(
    ("step", "takes_chunks"),
    [
        (lambda: beam.FlatMap(bytes.split), True),
        (lambda: beam.FlatMap(parts), True),
        (lambda: beam.Map(parts, b","), True),
        (lambda: beam.Map(parts, separator=b","), True),
        (lambda: beam.ParDo(WithDefault()), True),
        (lambda: beam.ParDo(WithDefault(), b","), True),
        (lambda: beam.ParDo(WithTime()), True),
        (lambda: beam.ParDo(WithDefaultAndTime()), True),
        (lambda: beam.Map(lambda value, window=beam.DoFn.WindowParam: window), True),
        (lambda: beam.Map(lambda value, whole=beam.DoFn.WindowedValueParam: whole), False),
        (lambda: beam.ParDo(WithKey()), False),
        (lambda: beam.ParDo(WithFinalizer()), False),
    ],
)
def test_steps_process_chunks_unless_only_beam_knows_an_argument(
    step: Callable[[], beam.PTransform], takes_chunks: bool
) -> None:
    assert (type(_operation(step())) is ChunkedParDo) == takes_chunks
