"""Every stage of many pipelines, from the user's code to operations that Beam has built."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io import ReadFromAvro, ReadFromParquet, ReadFromText, WriteToText
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.transforms import window

from beam_spark_runner.graph.passes import BATCH, run_passes
from beam_spark_runner.plan.build import build
from beam_spark_runner.portable.coders import Coders, check_key_coders
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.portable.pipeline import from_proto
from tests.unit.portable import edges
from tests.unit.portable.pipelines import proto_of


def word_count(p: beam.Pipeline) -> None:
    lines = p | ReadFromText("*", validate=False)
    words = lines | beam.FlatMap(str.split) | "pair" >> beam.Map(lambda w: (w, 1))
    words | beam.CombinePerKey(sum) | "format" >> beam.Map(str) | WriteToText("counts")


def columns(p: beam.Pipeline) -> None:
    p | ReadFromParquet("*", validate=False)
    p | ReadFromAvro("*", validate=False)


def side_inputs(p: beam.Pipeline) -> None:
    numbers = p | beam.Create([1, 2])
    pairs = numbers | "pair" >> beam.Map(lambda x: (x, x))
    numbers | beam.Map(
        lambda x, *_: x,
        beam.pvalue.AsIter(numbers),
        beam.pvalue.AsSingleton(p | "one" >> beam.Create([1])),
        beam.pvalue.AsDict(pairs),
        beam.pvalue.AsMultiMap(pairs),
    )


def groups(p: beam.Pipeline) -> None:
    left, right = p | "l" >> beam.Create([(1, 2)]), p | "r" >> beam.Create([(1, "x")])
    (left, right) | beam.CoGroupByKey() | beam.Map(print)
    left | beam.WindowInto(window.SlidingWindows(4, 2)) | beam.GroupByKey()


def combines(p: beam.Pipeline) -> None:
    numbers = p | beam.Create([1, 2])
    numbers | "with defaults" >> beam.CombineGlobally(sum)
    numbers | "without" >> beam.CombineGlobally(sum).without_defaults()
    numbers | "fanout" >> beam.CombineGlobally(sum).with_fanout(2)
    numbers | beam.combiners.Top.Of(2)
    numbers | beam.combiners.Mean.Globally()
    numbers | "view" >> beam.Map(
        lambda x, y: x, (numbers | "total" >> beam.CombineGlobally(sum).as_singleton_view())
    )


def branches(p: beam.Pipeline) -> None:
    numbers = p | beam.Create([1, 2])
    odd, even = numbers | beam.Partition(lambda x, n: x % n, 2)
    (odd, even, odd) | beam.Flatten() | beam.Distinct() | beam.Reshuffle() | beam.Map(print)
    tagged = numbers | beam.FlatMap(lambda x: [beam.pvalue.TaggedOutput("big", x)]).with_outputs(
        "big", main="small"
    )
    (tagged.big, tagged.small, numbers) | "again" >> beam.Flatten() | "end" >> beam.Map(print)
    () | "none" >> beam.Flatten(pipeline=p) | "nothing" >> beam.Map(print)


PIPELINES = [word_count, columns, side_inputs, groups, combines, branches]


@pytest.mark.parametrize("is_optimised", [False, True], ids=["plain", "optimised by the client"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_stage_builds(pipeline: Any, is_optimised: bool) -> None:
    proto = proto_of(pipeline)
    if is_optimised:
        proto = PortableRunner._optimize_pipeline(proto, PipelineOptions([]))
    graph = run_passes(from_proto(proto), BATCH)
    check_key_coders(graph, Coders(graph))
    plan = build(graph)
    assert plan.stages
    for id_, stage in plan.stages.items():
        description = describe(plan, id_, source_urn=edges.SOURCE_URN, sink_urn=edges.SINK_URN)
        processor = edges.processor_for(description)
        assert set(processor.ops) == {description.source, *description.sinks, *stage.transforms}
        assert set(description.sinks.values()) == set(stage.outputs)
        processor.shutdown()
