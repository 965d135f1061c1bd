"""Who maps windows to those of a side input, and how an SDK is asked."""

from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.environments import EmbeddedPythonEnvironment, ProcessEnvironment
from apache_beam.transforms.window import FixedWindows, GlobalWindows, IntervalWindow

from beam_spark_runner.core.errors import PipelineRefusedError
from beam_spark_runner.graph.model import Graph, Transform
from beam_spark_runner.portable.bounded import MalformedBytesError
from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.window_mapping import (
    MappedBy,
    SideWindow,
    answer_reader,
    coded_question,
    describe_window_mapping,
    mapped_by,
)
from tests.compiled import compile_pipeline
from tests.spark.lanes import Lane, LaneCoder, Lanes

REMOTE, EMBEDDED = ProcessEnvironment(""), EmbeddedPythonEnvironment()


def proto_of_lookup(side: Any, environment: Any = REMOTE, urn: str = "") -> Any:
    """Return a pipeline whose step "look up" reads fixed windows, and has a side input.

    Args:
        side: WindowFn of the side input.
        environment: of all steps.
        urn: of the mapping; empty: that of Python.
    """
    p = beam.Pipeline()
    main = p | beam.Create([1]) | "main" >> beam.WindowInto(FixedWindows(10))
    other = p | "other" >> beam.Create([2]) | "side" >> beam.WindowInto(side)
    main | "look up" >> beam.Map(lambda x, y: x, beam.pvalue.AsList(other))
    proto = p.to_runner_api(default_environment=environment)
    for transform in proto.components.transforms.values():
        if urn and "look up" in transform.unique_name and transform.spec.urn.endswith("pardo:v1"):
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            for each in payload.side_inputs.values():
                each.window_mapping_fn.urn = urn
            transform.spec.payload = payload.SerializeToString()
    return proto


def reader_in(proto: Any) -> tuple[Graph, Transform, str]:
    graph = from_proto(proto)
    (reader,) = (each for each in graph.transforms.values() if each.side_inputs)
    (name,) = reader.side_inputs
    return graph, reader, name


@pytest.mark.parametrize(
    ("side", "environment", "urn", "by"),
    [
        (GlobalWindows(), REMOTE, "", MappedBy.DEFAULT),
        (GlobalWindows(), EMBEDDED, "", MappedBy.DEFAULT),
        (FixedWindows(5), REMOTE, "", MappedBy.SDK),
        (FixedWindows(5), EMBEDDED, "", MappedBy.FUNCTION),
        (Lanes(), EMBEDDED, "", MappedBy.FUNCTION),
        (Lanes(), REMOTE, "", MappedBy.SDK),
        (FixedWindows(5), REMOTE, "beam:go:windowmapping:fixed:v1", MappedBy.DEFAULT),
        (FixedWindows(5), REMOTE, "beam:window_mapping_fn:identity:v1", MappedBy.DEFAULT),
        (FixedWindows(5), REMOTE, "beam:java:mapping", MappedBy.SDK),
        (Lanes(), REMOTE, "beam:window_mapping_fn:identity:v1", MappedBy.SDK),
    ],
)
def test_who_maps_windows(side: Any, environment: Any, urn: str, by: MappedBy) -> None:
    assert mapped_by(*reader_in(proto_of_lookup(side, environment, urn))) is by


def test_the_stage_has_beams_own_transform() -> None:
    graph, reader, name = reader_in(proto_of_lookup(Lanes()))
    description = describe_window_mapping(graph, reader, name)
    ask = description.descriptor("localhost:1").transforms["ask"]
    assert ask.unique_name == reader.name
    assert ask.spec.urn == "beam:transform:map_windows:v1"
    spec = beam_runner_api_pb2.FunctionSpec.FromString(ask.spec.payload)
    assert spec.urn == "beam:window_mapping_fn:pickled_python:v1"
    assert description.coded_environment


@pytest.mark.parametrize(
    ("side", "window", "end_us", "name"),
    [
        (Lanes(), Lane(20, 1), 29_999_000, LaneCoder().encode(Lane(20, 1))),
        (
            FixedWindows(10),
            IntervalWindow(20, 30),
            29_999_999,
            FixedWindows(10).get_window_coder().encode(IntervalWindow(20, 30)),
        ),
    ],
)
def test_questions_and_answers_are_what_an_sdk_reads_and_writes(
    side: Any, window: Any, end_us: int, name: bytes
) -> None:
    description = describe_window_mapping(*reader_in(proto_of_lookup(side)))
    descriptor = description.descriptor()
    coders = PipelineContext(descriptor).coders
    asked = IntervalWindow(20, 30)
    coded = FixedWindows(10).get_window_coder().encode(asked)
    question = coders.get_by_id(descriptor.pcollections["questions"].coder_id).value_coder()
    nonce, seen = question.decode(coded_question(coded))
    assert seen == asked
    answer = coders.get_by_id(descriptor.pcollections["answers"].coder_id).value_coder()
    asked_for, found = answer_reader(description)(answer.encode((nonce, window)))
    assert asked_for == coded
    assert found == SideWindow(end_us, name)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(b"", "cut off", id="empty"),
        pytest.param(b"\1k", "cut off", id="no window"),
        pytest.param(b"\1k\x80\x80\x80\x80\1", "268435456 more bytes", id="2^28 bytes"),
        pytest.param(b"\1k\0", "end within", id="an empty window"),
        pytest.param(b"\1k\x08\x80" + bytes(7), "end within", id="half a window"),
        pytest.param(b"\1k\x0a\x80" + bytes(7) + b"\1\1", "9 bytes, not 10", id="more"),
        pytest.param(b"\1k\x09\x80" + bytes(7) + b"\1x", "1 more", id="more after it"),
    ],
)
def test_answers_that_are_no_window(answer: bytes, problem: str) -> None:
    description = describe_window_mapping(*reader_in(proto_of_lookup(FixedWindows(10))))
    with pytest.raises(MalformedBytesError, match=problem):
        answer_reader(description)(answer)


def test_a_mapping_of_another_sdk_is_refused_where_python_runs() -> None:
    proto = proto_of_lookup(FixedWindows(5), EMBEDDED, "beam:java:mapping")
    compile_pipeline(proto)  # in batch it is not for the runner
    with pytest.raises(
        PipelineRefusedError, match=r"look up.*: its side input .* no window mapping"
    ):
        compile_pipeline(proto, is_streaming=True)
