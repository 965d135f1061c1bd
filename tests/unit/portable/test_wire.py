"""Coders of rows that the runner does not understand: what an SDK writes is what rows hold."""

import struct
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import (
    BytesCoder,
    FloatCoder,
    StrUtf8Coder,
    TupleCoder,
    VarIntCoder,
)
from apache_beam.coders.coders import LengthPrefixCoder
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.environments import ProcessEnvironment
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError
from beam_spark_runner.core.ids import StageId
from beam_spark_runner.portable.descriptor import describe
from beam_spark_runner.portable.stage_description import StageDescription
from beam_spark_runner.portable.wire import coder_seen_by_the_runner
from tests.compiled import compile_pipeline
from tests.spark.restrictions import Counting


class Opaque:
    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


class OpaqueCoder(beam.coders.Coder):  # type: ignore[misc]
    def encode(self, value: Opaque) -> bytes:
        return value.text.encode()

    def decode(self, coded: bytes) -> Opaque:
        return Opaque(coded.decode())

    def is_deterministic(self) -> bool:
        return True


beam.coders.registry.register_coder(Opaque, OpaqueCoder)


def proto_of(build: Any, environment: Any = None) -> Any:
    pipeline = beam.Pipeline()
    build(pipeline)
    return pipeline.to_runner_api(default_environment=environment or ProcessEnvironment(""))


def stages(build: Any, environment: Any = None) -> list[StageDescription]:
    return described(proto_of(build, environment))


def described(proto: Any) -> list[StageDescription]:
    plan = compile_pipeline(proto)
    return [describe(plan, StageId(id_)) for id_ in sorted(plan.stages)]


def edge(description: StageDescription, id_: str) -> tuple[Any, Any]:
    """The coders of an edge: the SDK's, and the runner's."""
    descriptor = description.descriptor()
    port = beam_fn_api_pb2.RemoteGrpcPort.FromString(descriptor.transforms[id_].spec.payload)
    of_sdk = PipelineContext(descriptor).coders.get_by_id(port.coder_id)
    return of_sdk, coder_seen_by_the_runner(descriptor, port.coder_id)


def only_sink(description: StageDescription) -> tuple[Any, Any]:
    (sink,) = description.sinks
    return edge(description, sink)


@pytest.mark.parametrize(
    ("kind", "value", "seen"),
    [
        (Opaque, Opaque("a" * 200), b"a" * 200),
        (bytes, b"b", b"b"),
        (str, "ü", "ü".encode()),
        (int, 300, b"\xac\x02"),
        (tuple[str, Opaque], ("k", Opaque("v")), (b"k", b"v")),
        (tuple[Opaque, int], (Opaque(""), 1), (b"", b"\x01")),
        (float, 0.5, struct.pack(">d", 0.5)),
        (tuple[float, float], (0.5, 1.5), (struct.pack(">d", 0.5), struct.pack(">d", 1.5))),
        (tuple[tuple[str, int], int], (("k", 1), 2), (b"\x01k\x01", b"\x02")),
        # Shaped like a sized restriction, but made by a user.
        (
            tuple[tuple[str, tuple[Opaque, Opaque]], float],
            (("e", (Opaque("r"), Opaque("w"))), 2.0),
            (b"\x01e\x01rw", struct.pack(">d", 2.0)),
        ),
    ],
)
def test_what_the_runner_sees_of_an_element(kind: Any, value: Any, seen: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        made = p | beam.Impulse() | beam.Map(lambda x: x).with_output_types(kind)
        made | beam.Reshuffle() | beam.Map(print)

    first, second = stages(build)
    of_sdk, of_runner = only_sink(first)
    element = WindowedValue(value, 0, (GlobalWindow(),))
    coded = of_sdk.get_impl().encode_nested(element)
    at_runner = of_runner.get_impl().decode_nested(coded)
    assert at_runner.value == seen
    # What it writes for the next stage is what that reads.
    of_next, of_runner = edge(second, second.source)
    coded = of_runner.get_impl().encode_nested(at_runner)
    assert of_next.get_impl().decode_nested(coded).value == value


@pytest.mark.parametrize(
    ("sdk", "urn"),
    [
        ("java17_sdk:2.65.0", urns.CODER_LENGTH_PREFIX),
        ("python3.11_sdk:2.65.0", urns.CODER_WINDOWED_VALUE),
    ],
)
def test_java_does_not_take_elements_that_are_windowed_values_for_its_own(
    sdk: str, urn: str
) -> None:
    """Java's harness would measure them by the coder of the values in them."""

    def build(p: beam.Pipeline) -> None:
        p | beam.Impulse() | "inside" >> beam.Map(str) | "end" >> beam.Map(print)

    proto = proto_of(
        build, ProcessEnvironment("", capabilities=[f"beam:version:sdk_base:apache/beam_{sdk}"])
    )
    coders = proto.components.coders
    coders["window"].spec.urn = urns.CODER_GLOBAL_WINDOW
    coders["text"].spec.urn = urns.CODER_STRING
    coders["windowed"].spec.urn = urns.CODER_WINDOWED_VALUE
    coders["windowed"].component_coder_ids.extend(["text", "window"])
    (id_,) = (
        output
        for each in proto.components.transforms.values()
        if each.unique_name == "inside"
        for output in each.outputs.values()
    )
    proto.components.pcollections[id_].coder_id = "windowed"
    (description,) = described(proto)
    descriptor = description.descriptor()
    coder = descriptor.coders[descriptor.pcollections[id_].coder_id]
    assert coder.spec.urn == urn
    if urn == urns.CODER_LENGTH_PREFIX:
        assert coder.component_coder_ids == ["windowed"]


def test_what_the_runner_sees_of_a_group() -> None:
    def build(p: beam.Pipeline) -> None:
        made = p | beam.Impulse() | beam.Map(lambda x: x).with_output_types(tuple[str, Opaque])
        made | beam.GroupByKey() | beam.Map(print)

    _, reader = stages(build)
    of_sdk, of_runner = edge(reader, reader.source)
    element = WindowedValue((b"k", [b"1", b"2"]), 0, (GlobalWindow(),))
    coded = of_runner.get_impl().encode_nested(element)
    key, values = of_sdk.get_impl().decode_nested(coded).value
    assert (key, list(values)) == ("k", [Opaque("1"), Opaque("2")])


@pytest.mark.parametrize("kind", [bytes, tuple[str, int]])
def test_a_group_is_a_pair_of_a_key_and_an_iterable(kind: Any) -> None:
    def build(p: beam.Pipeline) -> None:
        pairs = p | beam.Impulse() | beam.Map(lambda x: x).with_output_types(tuple[str, int])
        groups = pairs | "group" >> beam.GroupByKey()
        groups | "other" >> beam.Map(lambda x: x).with_output_types(kind)

    proto = proto_of(build)
    collections = proto.components.pcollections
    made = {
        each.unique_name: collections[id_]
        for each in proto.components.transforms.values()
        for id_ in each.outputs.values()
    }
    made["group"].coder_id = made["other"].coder_id
    with pytest.raises(InvalidPipelineError, match="a group is a KV of a key and an iterable"):
        described(proto)


RESTRICTION = beam.DoFn.RestrictionParam(Counting())


class CountUp(beam.DoFn):  # type: ignore[misc]
    def process(self, element: Any, tracker: Any = RESTRICTION) -> Any:
        yield element


def test_the_runner_sees_the_sizes_of_restrictions() -> None:
    def build(p: beam.Pipeline) -> None:
        p | beam.Impulse() | beam.ParDo(CountUp()) | beam.Map(print)

    splits, processes = stages(build)
    assert processes.is_splittable
    for _, of_runner in (only_sink(splits), edge(processes, processes.source)):
        paired, size = of_runner.wrapped_value_coder.coders()
        element, restriction_and_state = paired.coders()
        assert [element, *restriction_and_state.coders()] == [BytesCoder()] * 3
        assert size == FloatCoder()


def test_a_side_input_is_read_in_the_coder_in_which_it_was_written() -> None:
    def build(p: beam.Pipeline) -> None:
        side = p | beam.Impulse() | beam.Map(lambda x: x).with_output_types(tuple[int, Opaque])
        main = p | "main" >> beam.Impulse()
        main | "read" >> beam.Map(lambda x, d: d, beam.pvalue.AsDict(side))

    maker, reader = stages(build)
    _, written = only_sink(maker)
    key, value = written.wrapped_value_coder.coders()
    row = key.get_impl().encode_nested(b"\x05"), value.get_impl().encode_nested(b"v")
    descriptor = reader.descriptor()
    (read,) = (each for each in descriptor.transforms.values() if each.unique_name == "read")
    (side,) = (each for name, each in read.inputs.items() if name.startswith("python_side"))
    coder = PipelineContext(descriptor).coders.get_by_id(descriptor.pcollections[side].coder_id)
    assert coder.get_impl().decode_nested(b"".join(row)) == (5, Opaque("v"))


def test_a_stage_without_steps_runs_in_the_sdk_too() -> None:
    """It gets an iterable of what the runner does not understand, and gives an element."""

    def build(p: beam.Pipeline) -> None:
        made = p | beam.Impulse() | beam.Map(lambda x: x).with_output_types(tuple[str, Opaque])
        made | beam.GroupByKey() | "again" >> beam.GroupByKey() | beam.Map(print)

    _, carrier, _ = stages(build)
    assert not carrier.step_names
    assert carrier.coded_environment
    of_sdk, _ = edge(carrier, carrier.source)
    (sink,) = carrier.sinks
    _, of_runner = edge(carrier, sink)
    assert of_runner.wrapped_value_coder.coders() == (BytesCoder(), BytesCoder())
    assert "StateBacked" in repr(of_sdk)


def test_embedded_stages_are_as_they_were() -> None:
    from apache_beam.transforms.environments import EmbeddedPythonEnvironment

    def build(p: beam.Pipeline) -> None:
        made = p | beam.Impulse() | beam.Map(lambda x: x).with_output_types(Opaque)
        made | beam.Reshuffle() | beam.Map(print)

    first, _ = stages(build, EmbeddedPythonEnvironment.default())
    assert not first.coded_environment
    assert "wire:" not in str(first.descriptor().coders)


@pytest.mark.parametrize(
    ("coder", "value"),
    [
        (BytesCoder(), b"abc"),
        (StrUtf8Coder(), "abc"),
        (LengthPrefixCoder(OpaqueCoder()), Opaque("abc")),
        (TupleCoder([BytesCoder(), StrUtf8Coder()]), (b"a", "bc")),
        (VarIntCoder(), 42),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_a_test_stream_plays_reaches_the_sdk_as_it_was_encoded(coder: Any, value: Any) -> None:
    """Whatever the runner knows of its coder: SDKs differ in whether it has a length in front."""

    def play(pipeline: beam.Pipeline) -> None:
        pipeline | Stream(coder=coder).add_elements([value]) | beam.Map(print)

    (description,) = stages(play)
    of_sdk, seen = edge(description, description.source)
    played = WindowedValue(coder.encode(value), 0, (GlobalWindow(),))
    crossing = seen.get_impl().encode_nested(played)
    assert of_sdk.get_impl().decode_nested(crossing).value == value


def test_a_custom_coder_of_go_has_a_separate_length_in_front() -> None:
    """With one length-prefix coder around it, it is read as without; so there are two."""
    pipeline = beam.Pipeline()
    pipeline | Stream(coder=VarIntCoder()).add_elements([42]) | beam.Map(print)
    proto = pipeline.to_runner_api(default_environment=ProcessEnvironment(""))
    for coder in proto.components.coders.values():
        if coder.spec.urn == "beam:coder:varint:v1":
            coder.spec.urn = "beam:go:coder:custom:v1"
    plan = compile_pipeline(proto)
    (description,) = (describe(plan, StageId(id_)) for id_ in plan.stages)
    descriptor = description.descriptor()
    port = descriptor.transforms[description.source].spec.payload
    id_ = beam_fn_api_pb2.RemoteGrpcPort.FromString(port).coder_id
    chain = []
    while components := descriptor.coders[id_].component_coder_ids:
        id_ = components[0]
        chain.append(descriptor.coders[id_].spec.urn.split(":")[-2])
    assert chain == ["length_prefix", "length_prefix", "custom"]
