import pickle
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows, GlobalWindow, IntervalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.portable.descriptor import SINK_URN, SOURCE_URN, describe
from beam_spark_runner.portable.pipeline import from_proto
from tests.unit.portable import edges
from tests.unit.portable.pipelines import named, one_stage, output_of, proto_of


def in_global_window(value: Any) -> WindowedValue:
    return WindowedValue(value, MIN_TIMESTAMP, [GlobalWindow()])


def describe_for_test(plan: Any) -> Any:
    return describe(plan, StageId(0), source_urn=edges.SOURCE_URN, sink_urn=edges.SINK_URN)


def test_a_stage_runs_in_beams_bundle_processor() -> None:
    def build(p: beam.Pipeline) -> None:
        (
            p
            | beam.Impulse()
            | "split" >> beam.FlatMap(lambda _: ["a", "b"])
            | "pair" >> beam.Map(lambda x: (x, 1))
        )

    graph = from_proto(proto_of(build))
    out = output_of(graph, "pair")
    plan = one_stage(graph, ["split", "pair"], input_=output_of(graph, "Impulse"), outputs=[out])
    results = edges.run(describe_for_test(plan), [in_global_window(b"")])
    assert [each.value for each in results[out]] == [("a", 1), ("b", 1)]
