from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.io import ReadFromAvro, ReadFromParquet, ReadFromText, WriteToText
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2 as pb
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import FixedWindows, TimestampCombiner

from beam_spark_runner.core import urns
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.portable.pipeline import from_proto
from tests.unit.portable.graphs import Stateful, bare, of, small, transform_named
from tests.unit.portable.pipelines import proto_of


def shape(graph: Graph) -> list[tuple[str, str]]:
    return [
        (transform.name, transform.urn.removeprefix("beam:transform:").removesuffix(":v1"))
        for transform in graph.transforms.values()
    ]


def word_count(p: beam.Pipeline) -> None:
    lines = p | ReadFromText("README.md", validate=False)
    pairs = lines | "split" >> beam.FlatMap(str.split) | "one" >> beam.Map(lambda w: (w, 1))
    counts = pairs | "count" >> beam.CombinePerKey(sum)
    counts | "format" >> beam.Map(str) | WriteToText("counts")


def co_group(p: beam.Pipeline) -> None:
    left, right = p | "left" >> of((1, 2)), p | "right" >> of((1, 3))
    {"l": left, "r": right} | beam.CoGroupByKey()


def test_word_count_is_flattened_in_the_order_of_its_steps() -> None:
    write = "WriteToText/Write/WriteImpl"
    create = "FlatMap(<lambda at core.py"
    found = [
        (name.split(create)[0] + "FlatMap" if create in name else name, urn)
        for name, urn in shape(from_proto(proto_of(word_count)))
    ]
    assert found == [
        ("ReadFromText/Read/Impulse", "impulse"),
        ("ReadFromText/Read/EmitSource", "pardo"),
        ("ReadFromText/Read/SDFBoundedSourceReader/ParDo(SDFBoundedSourceDoFn)", "pardo"),
        ("split", "pardo"),
        ("one", "pardo"),
        ("count", "combine_per_key"),
        ("format", "pardo"),
        (f"{write}/DoOnce/Impulse", "impulse"),
        (f"{write}/DoOnce/FlatMap", "pardo"),
        (f"{write}/DoOnce/Map(decode)", "pardo"),
        (f"{write}/InitializeWrite", "pardo"),
        (f"{write}/WindowInto(WindowIntoFn)", "window_into"),
        (f"{write}/WriteBundles", "pardo"),
        (f"{write}/Pair", "pardo"),
        (f"{write}/GroupByKey", "group_by_key"),
        (f"{write}/Extract", "pardo"),
        (f"{write}/PreFinalize", "pardo"),
        (f"{write}/FinalizeWrite", "pardo"),
    ]


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda: ReadFromText("*", validate=False), id="text"),
        pytest.param(lambda: ReadFromParquet("*", validate=False), id="parquet"),
        pytest.param(lambda: ReadFromAvro("*", validate=False), id="avro"),
        pytest.param(lambda: of("a"), id="create"),
    ],
)
def test_a_read_starts_with_an_impulse(read: Callable[[], Any]) -> None:
    graph = from_proto(proto_of(lambda p: p | read()))
    assert shape(graph)[0][1] == "impulse"
    assert urns.READ not in {transform.urn for transform in graph.transforms.values()}


def test_a_bounded_source_is_read_by_a_splittable_dofn() -> None:
    graph = from_proto(proto_of(lambda p: p | ReadFromText("*", validate=False)))
    reader = transform_named(
        graph, "ReadFromText/Read/SDFBoundedSourceReader/ParDo(SDFBoundedSourceDoFn)"
    )
    assert reader.restriction_coder in graph.coders
    assert graph.requirements == ("beam:requirement:pardo:splittable_dofn:v1",)


def test_pass_through_composites_vanish() -> None:
    class Nothing(beam.PTransform):  # type: ignore[misc]
        def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
            return pcoll

    graph = from_proto(
        proto_of(lambda p: p | beam.Impulse() | Nothing() | "end" >> beam.Map(lambda x: x))
    )
    assert shape(graph) == [("Impulse", "impulse"), ("end", "pardo")]


def test_a_composite_that_returns_a_collection_from_elsewhere_vanishes() -> None:
    class Elsewhere(beam.PTransform):  # type: ignore[misc]
        def __init__(self, other: beam.PCollection) -> None:
            self.other = other

        def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
            return self.other

    def build(p: beam.Pipeline) -> None:
        other = p | "other" >> beam.Impulse()
        p | beam.Impulse() | Elsewhere(other) | "end" >> beam.Map(lambda x: x)

    graph = from_proto(proto_of(build))
    assert [name for name, _ in shape(graph)] == ["other", "Impulse", "end"]


@pytest.mark.parametrize(
    ("combine", "urn"),
    [
        pytest.param(lambda p: beam.CombinePerKey(sum), "combine_per_key", id="plain"),
        pytest.param(
            lambda p: beam.CombinePerKey(lambda xs, k: sum(xs), 3),
            "combine_per_key",
            id="an argument that is a value is curried",
        ),
        pytest.param(
            lambda p: beam.CombinePerKey(
                lambda xs, k: sum(xs), beam.pvalue.AsSingleton(p | "side" >> of(3))
            ),
            "group_by_key",
            id="a side input: its parts know how to read it",
        ),
    ],
)
def test_combine_per_key(combine: Any, urn: str) -> None:
    graph = from_proto(proto_of(lambda p: p | of((1, 2)) | "combine" >> combine(p)))
    (found,) = [
        transform
        for transform in graph.transforms.values()
        if transform.urn in (urns.COMBINE_PER_KEY, urns.GROUP_BY_KEY)
    ]
    assert found.urn == f"beam:transform:{urn}:v1"
    if urn == "combine_per_key":
        assert found.accumulator_coder in graph.coders
        assert found.environment in graph.environments


@pytest.mark.parametrize(
    ("combiner", "is_streaming", "urn"),
    [
        (TimestampCombiner.OUTPUT_AT_EARLIEST, False, urns.COMBINE_PER_KEY),
        (TimestampCombiner.OUTPUT_AT_LATEST, True, urns.COMBINE_PER_KEY),
        # Of an accumulator of late and other elements nobody knows the earliest that is not late.
        (TimestampCombiner.OUTPUT_AT_EARLIEST, True, urns.GROUP_BY_KEY),
    ],
)
def test_the_earliest_timestamp_is_that_of_an_element(
    combiner: Any, is_streaming: bool, urn: str
) -> None:
    def build(p: beam.Pipeline) -> None:
        source = Stream(coder=VarIntCoder()) if is_streaming else beam.Create([1])
        pairs = p | source | beam.Map(lambda n: (n, n)).with_output_types(tuple[int, int])
        windowed = pairs | beam.WindowInto(FixedWindows(10), timestamp_combiner=combiner)
        windowed | "combine" >> beam.CombinePerKey(sum)

    found = {transform.urn for transform in from_proto(proto_of(build)).transforms.values()}
    assert urn in found
    assert ({urns.COMBINE_PER_KEY, urns.GROUP_BY_KEY} & found) == {urn}


@pytest.mark.parametrize("build", [word_count, co_group])
def test_a_pipeline_that_the_client_optimised_yields_the_same_steps(build: Any) -> None:
    proto = proto_of(build)
    plain = shape(from_proto(proto))
    optimised = PortableRunner._optimize_pipeline(proto, PipelineOptions([]))
    assert shape(from_proto(optimised)) == plain


def test_packed_combines_of_the_client_are_combines() -> None:
    def build(p: beam.Pipeline) -> None:
        pairs = p | of((1, 2))
        pairs | "min" >> beam.CombinePerKey(min)
        pairs | "max" >> beam.CombinePerKey(max)

    optimised = PortableRunner._optimize_pipeline(proto_of(build), PipelineOptions([]))
    kinds = [urn for _, urn in shape(from_proto(optimised))]
    assert any(kind.startswith("combine_per_key") for kind in kinds)


def test_reshuffle_stays_whole_and_belongs_to_the_runner() -> None:
    graph = from_proto(proto_of(lambda p: p | beam.Impulse() | "shuffle" >> beam.Reshuffle()))
    assert shape(graph) == [("Impulse", "impulse"), ("shuffle", "reshuffle")]
    assert transform_named(graph, "shuffle").environment is None


def test_a_reshuffle_is_expanded_on_demand() -> None:
    proto = proto_of(lambda p: p | beam.Impulse() | "shuffle" >> beam.Reshuffle())
    kinds = [kind for _, kind in shape(from_proto(proto, expands_reshuffles=True))]
    assert "group_by_key" in kinds, kinds
    assert "reshuffle" not in kinds, kinds


def test_what_the_runner_executes_has_no_environment() -> None:
    def build(p: beam.Pipeline) -> None:
        (p | "a" >> of((1, 1)), p | "b" >> of((1, 2))) | beam.Flatten() | beam.GroupByKey()

    graph = from_proto(proto_of(build))
    assert transform_named(graph, "Flatten").environment is None
    assert transform_named(graph, "GroupByKey").environment is None


def test_flatten_of_nothing() -> None:
    graph = from_proto(proto_of(lambda p: () | beam.Flatten(pipeline=p) | beam.Map(print)))
    assert shape(graph)[0] == ("Flatten", "flatten")
    assert transform_named(graph, "Flatten").inputs == {}


def test_access_patterns_of_side_inputs() -> None:
    def build(p: beam.Pipeline) -> None:
        views = (
            beam.pvalue.AsIter(p | "a" >> of(1)),
            beam.pvalue.AsSingleton(p | "b" >> of(1)),
            beam.pvalue.AsDict(p | "c" >> of((1, 2))),
            beam.pvalue.AsMultiMap(p | "d" >> of((1, 2))),
        )
        p | of(1) | "read" >> beam.Map(lambda x, *_: x, *views)

    read = transform_named(from_proto(proto_of(build)), "read")
    assert read.side_inputs == {
        "python_side_input0": urns.SIDE_INPUT_ITERABLE,
        "python_side_input1": urns.SIDE_INPUT_ITERABLE,
        "python_side_input2": urns.SIDE_INPUT_ITERABLE,
        "python_side_input3": urns.SIDE_INPUT_MULTIMAP,
    }
    assert len(read.main_inputs) == 1


def test_tagged_outputs() -> None:
    class Tag(beam.DoFn):  # type: ignore[misc]
        def process(self, x: int) -> Any:
            yield beam.pvalue.TaggedOutput("odd" if x % 2 else "even", x)

    graph = from_proto(
        proto_of(lambda p: p | of(1) | beam.ParDo(Tag()).with_outputs("odd", "even"))
    )
    (tag,) = [t for t in graph.transforms.values() if "odd" in t.outputs]
    assert sorted(tag.outputs) == ["None", "even", "odd"]


def test_state_timers_and_finalization() -> None:
    keyed = transform_named(
        from_proto(proto_of(lambda p: p | of((1, b"")) | "keyed" >> beam.ParDo(Stateful()))),
        "keyed",
    )
    assert keyed.state_ids == ("bag", "sum")
    assert keyed.timer_families == ("ts-timer",)
    assert keyed.is_keyed
    assert keyed.finalizes_bundles


def test_the_order_of_the_protos_maps_does_not_matter() -> None:
    proto = proto_of(word_count)
    shuffled = pb.Pipeline.FromString(proto.SerializeToString())
    shuffled.components.ClearField("transforms")
    for id_ in sorted(proto.components.transforms, reverse=True):
        shuffled.components.transforms[id_].CopyFrom(proto.components.transforms[id_])
    assert list(from_proto(shuffled).transforms.items()) == list(
        from_proto(proto).transforms.items()
    )


def test_depth_is_no_matter() -> None:
    depth = 2_000
    ids = [str(position) for position in range(depth)]
    chain = {id_: ([f"p{position}"], [f"p{position + 1}"]) for position, id_ in enumerate(ids)}
    chain["0"] = ([], ["p1"])
    proto = bare([], chain)
    for position, id_ in enumerate(ids):  # composite n holds leaf n and composite n + 1
        composite = proto.components.transforms[f"composite {position}"]
        following = [f"composite {position + 1}"] if position + 1 < depth else []
        composite.subtransforms.extend([*following, id_])
    proto.root_transform_ids.append("composite 0")
    assert list(from_proto(proto).transforms) == ids


def test_a_terminal_pardo_without_outputs_stays() -> None:
    proto = bare(["i", "a"], {"i": ([], ["x"]), "a": (["x"], [])})
    assert list(from_proto(proto).transforms) == ["i", "a"]


def test_an_empty_pipeline_is_legal() -> None:
    assert from_proto(pb.Pipeline()).transforms == {}


def test_a_collection_may_be_unbounded() -> None:
    proto = small()
    proto.components.pcollections["x"].is_bounded = pb.IsBounded.UNBOUNDED
    bounded = {id_: each.is_bounded for id_, each in from_proto(proto).pcollections.items()}
    assert bounded == {"x": False, "y": True}
