"""Descriptors of stages for tests, and a way to run them."""

from collections.abc import Sequence
from typing import Any

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows, GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.portable.descriptor import (
    describe,
)
from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.stage_description import StageDescription
from tests.unit.portable import edges
from tests.unit.portable.pipelines import one_stage, output_of, proto_of


def globally(*values: Any) -> list[WindowedValue]:
    return [WindowedValue(value, MIN_TIMESTAMP, [GlobalWindow()]) for value in values]


def to_run(plan: Plan) -> StageDescription:
    return describe(plan, StageId(0), source_urn=edges.SOURCE_URN, sink_urn=edges.SINK_URN)


def values(results: Sequence[WindowedValue]) -> list[Any]:
    return [each.value for each in results]


def split_and_pair(p: beam.Pipeline) -> None:
    pairs = (
        p
        | beam.Impulse()
        | "split" >> beam.FlatMap(lambda _: ["a", "b"])
        | "pair" >> beam.Map(lambda x: (x, 1)).with_output_types(tuple[str, int])
    )
    pairs | "other" >> beam.WindowInto(FixedWindows(10)) | "end" >> beam.Map(lambda x: {"x": x})


def the_plan(names: Sequence[str] = ("split", "pair"), **kwargs: Any) -> Plan:
    graph = from_proto(proto_of(split_and_pair))
    kwargs.setdefault("outputs", [output_of(graph, names[-1])])
    return one_stage(graph, names, input_=output_of(graph, "Impulse"), **kwargs)


def grouped(p: beam.Pipeline) -> None:
    (
        p
        | beam.Create([("a", 1)])
        | "group" >> beam.GroupByKey()
        | "total" >> beam.MapTuple(lambda k, vs: (k, sum(vs)))
    )


def windowed(p: beam.Pipeline) -> None:
    p | beam.Create([1]) | "step" >> beam.WindowInto(FixedWindows(1))
