"""The stage that merges windows by a WindowFn of an SDK."""

import apache_beam as beam
import pytest
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.portability.api import beam_fn_api_pb2, beam_runner_api_pb2
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.environments import EmbeddedPythonEnvironment, ProcessEnvironment
from apache_beam.transforms.window import FixedWindows, Sessions, SlidingWindows

from beam_spark_runner.core import urns
from beam_spark_runner.graph.facts import main_input, windowing
from beam_spark_runner.graph.model import Graph, Windowing
from beam_spark_runner.portable.bounded import MalformedBytesError
from beam_spark_runner.portable.pipeline import from_proto
from beam_spark_runner.portable.window_merging import (
    coded_question,
    decoded_answer,
    describe_window_merging,
    is_of_an_sdk,
)


class Visits(Sessions):  # type: ignore[misc]
    """Sessions that the model does not know."""

    def to_runner_api_parameter(self, context: PipelineContext) -> tuple[str, bytes]:
        return "test:visits", b"gap"


def windowed(window_fn: object, environment: object) -> tuple[Graph, Windowing]:
    """Return a graph in which values are windowed by a WindowFn, and that windowing."""
    p = beam.Pipeline()
    p | beam.Create([("a", 1)]) | beam.WindowInto(window_fn) | beam.GroupByKey() | beam.Keys()
    graph = from_proto(p.to_runner_api(default_environment=environment))
    return graph, _of_groups(graph)


def _of_groups(graph: Graph) -> Windowing:
    (group,) = (each for each in graph.transforms.values() if each.urn == urns.GROUP_BY_KEY)
    return windowing(graph, main_input(group))


@pytest.mark.parametrize("window_fn", [FixedWindows(5), SlidingWindows(5, 1), Sessions(5)])
def test_the_runner_knows_window_fns_of_the_model(window_fn: object) -> None:
    assert not is_of_an_sdk(*windowed(window_fn, ProcessEnvironment("")))


@pytest.mark.parametrize(
    ("environment", "is_remote"),
    [(EmbeddedPythonEnvironment(), False), (ProcessEnvironment(""), True)],
)
def test_others_belong_to_their_sdk(environment: object, is_remote: bool) -> None:
    assert is_of_an_sdk(*windowed(Visits(5), environment)) == is_remote


def test_the_environment_is_that_of_the_window_fn_even_if_no_step_is_in_it() -> None:
    p = beam.Pipeline()
    p | beam.Create([("a", 1)]) | beam.WindowInto(Visits(5)) | beam.GroupByKey() | beam.Keys()
    proto = p.to_runner_api(default_environment=ProcessEnvironment("steps"))
    proto.components.environments["other"].CopyFrom(
        ProcessEnvironment("windows").to_runner_api(PipelineContext())
    )
    for strategy in proto.components.windowing_strategies.values():
        strategy.environment_id = "other"
    graph = from_proto(proto)
    description = describe_window_merging(graph, _of_groups(graph), "Group")
    environment = beam_runner_api_pb2.Environment.FromString(description.coded_environment)
    payload = beam_runner_api_pb2.ProcessPayload.FromString(environment.payload)
    assert payload.command == "windows"


def test_the_stage_has_beams_own_transform_and_coders() -> None:
    description = describe_window_merging(*windowed(Visits(5), ProcessEnvironment("")), "Group")
    descriptor = description.descriptor("localhost:1")
    merge = descriptor.transforms["ask"]
    assert merge.unique_name == "Group"
    assert merge.spec.urn == "beam:transform:merge_windows:v1"
    spec = beam_runner_api_pb2.FunctionSpec.FromString(merge.spec.payload)
    assert (spec.urn, spec.payload) == ("test:visits", b"gap")
    for edge in ("source", "sink"):
        port = beam_fn_api_pb2.RemoteGrpcPort.FromString(descriptor.transforms[edge].spec.payload)
        assert port.api_service_descriptor.url == "localhost:1"
        assert PipelineContext(descriptor).coders.get_by_id(port.coder_id)
    assert description.step_names == {"ask": "Group"}


def test_questions_and_answers_are_what_an_sdk_reads_and_writes() -> None:
    visits = windowed(Visits(5), ProcessEnvironment(""))
    descriptor = describe_window_merging(*visits, "Group").descriptor("localhost:1")
    coders = PipelineContext(descriptor).coders
    windows = [beam.window.IntervalWindow(start, start + 5) for start in (0, 3, 20)]
    encode = IntervalWindowCoder().encode

    question = coders.get_by_id(descriptor.pcollections["questions"].coder_id)
    nested = question.value_coder()  # without the length, which the stream has
    assert nested.decode(coded_question(map(encode, windows))) == (b"", windows)

    whole = beam.window.IntervalWindow(0, 8)
    answer = coders.get_by_id(descriptor.pcollections["answers"].coder_id).value_coder()
    coded = answer.encode((b"", ([windows[2]], [(whole, windows[:2])])))
    assert decoded_answer(coded) == [(encode(whole), [*map(encode, windows[:2])])]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        pytest.param(b"", "cut off", id="empty"),
        pytest.param(b"\0", "4 more bytes", id="only a nonce"),
        pytest.param(b"\0\0\0\0\0", "4 more bytes", id="nothing merged"),
        pytest.param(b"\0\0\0\0\0\0\0\0\1", "cut off", id="no merged window"),
        pytest.param(b"\0\x40\0\0\0", "1073741824 items", id="2^30 windows"),
        pytest.param(
            b"\0\0\0\0\0\0\0\0\1\1w\0\0\0\1\x80\x80\x80\x80\1", "268435456", id="a window of 2^28"
        ),
        pytest.param(b"\0" * 10, "1 more", id="more bytes"),
    ],
)
def test_bytes_that_are_no_answer(answer: bytes, problem: str) -> None:
    with pytest.raises(MalformedBytesError, match=problem):
        decoded_answer(answer)
