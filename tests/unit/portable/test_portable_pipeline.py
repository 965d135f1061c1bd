from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import BytesCoder, VarIntCoder
from apache_beam.io import ReadFromAvro, ReadFromParquet, ReadFromText, WriteToText
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2 as pb
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.transforms import trigger, userstate, window
from apache_beam.transforms.userstate import on_timer

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.graph.model import Graph, TimestampCombiner
from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.windowing import trigger_is_default, trigger_text
from tests.unit.portable.pipelines import named, proto_of


def shape(graph: Graph) -> list[tuple[str, str]]:
    return [
        (transform.name, transform.urn.removeprefix("beam:transform:").removesuffix(":v1"))
        for transform in graph.transforms.values()
    ]


def transform_named(graph: Graph, name: str) -> Any:
    return graph.transforms[named(graph, name)]


def of(*values: object) -> beam.Create:
    return beam.Create(list(values), reshuffle=False)


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


def test_the_environment_of_a_combine_may_stand_in_its_parts() -> None:
    proto = proto_of(lambda p: p | of((1, 2)) | "combine" >> beam.CombinePerKey(sum))
    (composite,) = [t for t in proto.components.transforms.values() if t.unique_name == "combine"]
    environment = composite.environment_id
    composite.environment_id = ""
    assert transform_named(from_proto(proto), "combine").environment == environment


def with_two_environments(proto: pb.Pipeline, change: Callable[[pb.Environment], None]) -> set[Any]:
    """Environments of a pipeline's steps where "second" is in another one than "first"."""
    components = proto.components
    (id_,) = components.environments
    components.environments["other"].CopyFrom(components.environments[id_])
    change(components.environments["other"])
    for transform in components.transforms.values():
        if transform.unique_name.startswith("second"):
            transform.environment_id = "other"
    graph = from_proto(proto)
    used = {transform_named(graph, name).environment for name in ("first", "second")}
    assert used <= set(graph.environments)
    return used


def two_maps(p: beam.Pipeline) -> None:
    p | of(1) | "first" >> beam.Map(str) | "second" >> beam.Map(str)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda e: e.resource_hints.update(ram=b"1"), id="resource hints"),
        pytest.param(lambda e: e.ClearField("capabilities"), id="capabilities"),
        pytest.param(lambda e: e.display_data.add(urn="text"), id="display data"),
    ],
)
def test_environments_that_run_the_same_code_are_one(change: Any) -> None:
    assert len(with_two_environments(proto_of(two_maps), change)) == 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda e: setattr(e, "urn", "beam:env:process:v1"), id="another kind"),
        pytest.param(lambda e: setattr(e, "payload", b"image"), id="another payload"),
        pytest.param(lambda e: e.dependencies.add(type_urn="file"), id="other packages"),
    ],
)
def test_environments_that_may_run_other_code_stay_apart(change: Any) -> None:
    assert len(with_two_environments(proto_of(two_maps), change)) == 2


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


class Stateful(beam.DoFn):  # type: ignore[misc]
    CELL = userstate.BagStateSpec("bag", BytesCoder())
    SUM = userstate.CombiningValueStateSpec("sum", VarIntCoder(), sum)
    TIMER = userstate.TimerSpec("timer", userstate.TimeDomain.WATERMARK)

    def process(
        self,
        element: Any,
        cell: Any = beam.DoFn.StateParam(CELL),
        total: Any = beam.DoFn.StateParam(SUM),
        timer: Any = beam.DoFn.TimerParam(TIMER),
        finalizer: Any = beam.DoFn.BundleFinalizerParam,
    ) -> None:
        """Touch nothing."""

    @on_timer(TIMER)  # type: ignore[untyped-decorator]
    def fire(self) -> None:
        """Do nothing."""


def test_state_timers_and_finalization() -> None:
    keyed = transform_named(
        from_proto(proto_of(lambda p: p | of((1, b"")) | "keyed" >> beam.ParDo(Stateful()))),
        "keyed",
    )
    assert keyed.state_ids == ("bag", "sum")
    assert keyed.timer_families == ("ts-timer",)
    assert keyed.is_keyed
    assert keyed.finalizes_bundles


class Exotic(window.NonMergingWindowFn):  # type: ignore[misc]
    def assign(self, context: Any) -> list[window.GlobalWindow]:
        return [window.GlobalWindow()]

    def get_window_coder(self) -> Any:
        return window.GlobalWindows().get_window_coder()


@pytest.mark.parametrize(
    ("window_fn", "urn", "merges"),
    [
        (window.FixedWindows(3), urns.WINDOW_FN_FIXED, False),
        (window.SlidingWindows(4, 2), urns.WINDOW_FN_SLIDING, False),
        (window.Sessions(3), urns.WINDOW_FN_SESSION, True),
        (window.GlobalWindows(), urns.WINDOW_FN_GLOBAL, False),
        (Exotic(), "beam:window_fn:pickled_python:v1", False),
    ],
)
def test_window_fns(window_fn: Any, urn: str, merges: bool) -> None:
    graph = from_proto(proto_of(lambda p: p | of(1) | "w" >> beam.WindowInto(window_fn)))
    (output,) = transform_named(graph, "w").outputs.values()
    windowing = graph.windowings[graph.pcollections[output].windowing]
    assert (windowing.window_fn_urn, windowing.merges) == (urn, merges)
    assert windowing.window_coder in graph.coders


@pytest.mark.parametrize(
    ("output_time", "combiner"),
    [
        (pb.OutputTime.END_OF_WINDOW, TimestampCombiner.END_OF_WINDOW),
        (pb.OutputTime.EARLIEST_IN_PANE, TimestampCombiner.EARLIEST),
        (pb.OutputTime.LATEST_IN_PANE, TimestampCombiner.LATEST),
    ],
)
def test_timestamp_combiners(output_time: Any, combiner: TimestampCombiner) -> None:
    graph = from_proto(
        proto_of(
            lambda p: (
                p
                | of(1)
                | "w" >> beam.WindowInto(window.FixedWindows(3), timestamp_combiner=output_time)
            )
        )
    )
    (output,) = transform_named(graph, "w").outputs.values()
    found = graph.windowings[graph.pcollections[output].windowing]
    assert found.timestamp_combiner is combiner


@pytest.mark.parametrize(
    ("made_of", "is_default", "text"),
    [
        (trigger.DefaultTrigger(), True, "default"),
        (trigger.AfterWatermark(), True, "after_end_of_window"),
        (
            trigger.AfterWatermark(early=trigger.AfterCount(3)),
            False,
            "after_end_of_window(element_count(3))",
        ),
        (
            trigger.Repeatedly(trigger.AfterAny(trigger.AfterCount(2), trigger.AfterWatermark())),
            False,
            "repeat(after_any(element_count(2), after_end_of_window))",
        ),
        (trigger.AfterProcessingTime(3), False, "after_processing_time"),
    ],
)
def test_triggers(made_of: Any, is_default: bool, text: str) -> None:
    proto = made_of.to_runner_api(None)
    assert trigger_is_default(proto) is is_default
    assert trigger_text(proto) == text


def test_the_order_of_the_protos_maps_does_not_matter() -> None:
    proto = proto_of(word_count)
    shuffled = pb.Pipeline.FromString(proto.SerializeToString())
    shuffled.components.ClearField("transforms")
    for id_ in sorted(proto.components.transforms, reverse=True):
        shuffled.components.transforms[id_].CopyFrom(proto.components.transforms[id_])
    assert list(from_proto(shuffled).transforms.items()) == list(
        from_proto(proto).transforms.items()
    )


def bare(ids: list[str], edges: dict[str, tuple[list[str], list[str]]]) -> pb.Pipeline:
    """A proto of nothing but ParDos: id -> (inputs, outputs)."""
    proto = pb.Pipeline(root_transform_ids=ids)
    payload = pb.ParDoPayload(do_fn=pb.FunctionSpec(urn="fn")).SerializeToString()
    components = proto.components
    components.coders["c"].spec.urn = urns.CODER_BYTES
    components.environments["e"].urn = "beam:env:embedded_python:v1"
    strategy = components.windowing_strategies["w"]
    strategy.window_coder_id, strategy.window_fn.urn = "c", urns.WINDOW_FN_GLOBAL
    for id_, (inputs, outputs) in edges.items():
        transform = components.transforms[id_]
        transform.unique_name, transform.environment_id = f"step {id_}", "e"
        transform.spec.urn = urns.PAR_DO if inputs else urns.IMPULSE
        transform.spec.payload = payload if inputs else b""
        for group, collections in ((transform.inputs, inputs), (transform.outputs, outputs)):
            for position, collection in enumerate(collections):
                group[str(position)] = collection
                found = components.pcollections[collection]
                found.coder_id, found.windowing_strategy_id = "c", "w"
    return proto


def small() -> pb.Pipeline:
    return bare(["i", "a"], {"i": ([], ["x"]), "a": (["x"], ["y"])})


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


def dangling_root(proto: pb.Pipeline) -> None:
    proto.root_transform_ids.append("nowhere")


def dangling_part(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].subtransforms.append("nowhere")


def dangling_collection(proto: pb.Pipeline) -> None:
    del proto.components.pcollections["y"]


def dangling_coder(proto: pb.Pipeline) -> None:
    proto.components.pcollections["y"].coder_id = "nowhere"


def dangling_component(proto: pb.Pipeline) -> None:
    proto.components.pcollections["y"].coder_id = "kv"
    proto.components.coders["kv"].component_coder_ids.append("nowhere")


def dangling_windowing(proto: pb.Pipeline) -> None:
    proto.components.pcollections["y"].windowing_strategy_id = "nowhere"


def dangling_window_coder(proto: pb.Pipeline) -> None:
    proto.components.pcollections["y"].windowing_strategy_id = "v"
    proto.components.windowing_strategies["v"].window_coder_id = "nowhere"


def dangling_environment(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].environment_id = "nowhere"


def dangling_state_coder(proto: pb.Pipeline) -> None:
    payload = pb.ParDoPayload(do_fn=pb.FunctionSpec(urn="fn"))
    payload.state_specs["cell"].bag_spec.element_coder_id = "nowhere"
    proto.components.transforms["a"].spec.payload = payload.SerializeToString()


def missing_payload(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].spec.payload = b""


def undecodable_payload(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].spec.payload = b"\xff\xff"


def payload_without_fn(proto: pb.Pipeline) -> None:
    payload = pb.ParDoPayload(requests_finalization=True)
    proto.components.transforms["a"].spec.payload = payload.SerializeToString()


def side_input_without_collection(proto: pb.Pipeline) -> None:
    payload = pb.ParDoPayload(do_fn=pb.FunctionSpec(urn="fn"))
    payload.side_inputs["side"].access_pattern.urn = urns.SIDE_INPUT_ITERABLE
    proto.components.transforms["a"].spec.payload = payload.SerializeToString()


def two_main_inputs(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].inputs["more"] = "x"


def cycle(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].inputs["0"] = "y"


def two_producers(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].outputs["0"] = "x"


def no_producer(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].inputs["0"] = "z"


def composite_in_itself(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].subtransforms.append("a")


def group_by_key_of_two(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].spec.urn = urns.GROUP_BY_KEY
    proto.components.transforms["a"].inputs["more"] = "x"


def combine_without_accumulator(proto: pb.Pipeline) -> None:
    proto.components.transforms["a"].spec.urn = urns.COMBINE_PER_KEY


@pytest.mark.parametrize(
    ("spoil", "where", "problem"),
    [
        (dangling_root, "the pipeline", "nowhere"),
        (dangling_part, "step a", "nowhere"),
        (dangling_collection, "step a", "y"),
        (dangling_coder, "step a", "nowhere"),
        (dangling_component, "step a", "nowhere"),
        (dangling_windowing, "step a", "nowhere"),
        (dangling_window_coder, "step a", "nowhere"),
        (dangling_environment, "step a", "nowhere"),
        (dangling_state_coder, "step a", "nowhere"),
        (missing_payload, "step a", "missing"),
        (undecodable_payload, "step a", "decoded"),
        (payload_without_fn, "step a", "DoFn"),
        (side_input_without_collection, "step a", "side"),
        (two_main_inputs, "step a", "main input"),
        (cycle, "step a", "consumes"),
        (two_producers, "step a", "step i"),
        (no_producer, "step a", "nothing makes"),
        (composite_in_itself, "step a", "contains itself"),
        (group_by_key_of_two, "step a", "one input"),
        (combine_without_accumulator, "step a", "accumulator"),
    ],
)
def test_a_malformed_pipeline_is_refused_by_step(
    spoil: Callable[[pb.Pipeline], None], where: str, problem: str
) -> None:
    proto = small()
    spoil(proto)
    with pytest.raises(InvalidPipelineError) as raised:
        from_proto(proto)
    assert raised.value.where == where
    assert problem in raised.value.problem
