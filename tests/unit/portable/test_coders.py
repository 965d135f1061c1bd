from dataclasses import replace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.coders import PickleCoder, WindowedValueCoder
from apache_beam.portability.api import schema_pb2
from apache_beam.transforms.window import FixedWindows, IntervalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import InvalidPipelineError, UnsupportedFeatureError
from beam_spark_runner.core.ids import CoderId
from beam_spark_runner.graph.model import Coder, Graph
from beam_spark_runner.portable.coders import (
    Coders,
    check_key_coders,
    deterministic_key_coder,
    key_coder_problems,
)
from beam_spark_runner.portable.pipeline import from_proto
from tests.unit.portable.pipelines import named, output_of, proto_of


def grouped(p: beam.Pipeline) -> None:
    (
        p
        | beam.Create([("a", 1)]).with_output_types(tuple[str, int])
        | "window" >> beam.WindowInto(FixedWindows(10))
        | "group" >> beam.GroupByKey()
    )


def graph_of(build: Any, *flags: str) -> Graph:
    return from_proto(proto_of(build, *flags))


def test_element_window_and_windowed_value() -> None:
    graph = graph_of(grouped)
    coders, collection = Coders(graph), output_of(graph, "window")
    assert coders.element(collection).encode(("a", 1)) == b"\x01a\x01"
    assert coders.window(collection).decode(
        coders.window(collection).encode(IntervalWindow(0, 10))
    ) == IntervalWindow(0, 10)
    windowed = coders.windowed(collection)
    assert isinstance(windowed, WindowedValueCoder)
    value = WindowedValue(("a", 1), 5, (IntervalWindow(0, 10),))
    assert windowed.decode(windowed.encode(value)) == value


def test_key_and_value() -> None:
    graph = graph_of(grouped)
    coders = Coders(graph)
    key, value = map(coders.coder_of, coders.key_value_ids(output_of(graph, "window")))
    assert (key.encode("a"), value.encode(1)) == (b"a", b"\x01")


def test_a_coder_is_built_once() -> None:
    graph = graph_of(grouped)
    coders, collection = Coders(graph), output_of(graph, "window")
    assert coders.element(collection) is coders.element(collection)


def with_coder(graph: Graph, id_: str, coder: Coder) -> Coders:
    return Coders(replace(graph, coders={**graph.coders, CoderId(id_): coder}))


@pytest.mark.parametrize(
    ("coder", "error"),
    [
        pytest.param(Coder(urn="other:sdk:coder:v1"), UnsupportedFeatureError, id="unknown"),
        pytest.param(
            Coder(urn="beam:coder:pickled_python:v1", payload=b"\xff"),
            InvalidPipelineError,
            id="does not load",
        ),
        pytest.param(
            Coder(urn=urns.CODER_ROW, payload=b"\xff"), InvalidPipelineError, id="no schema"
        ),
    ],
)
def test_coders_that_cannot_be_built(coder: Coder, error: type[Exception]) -> None:
    coders = with_coder(graph_of(grouped), "bad", coder)
    with pytest.raises(error, match="bad"):
        coders.coder_of(CoderId("bad"))


def test_a_missing_coder() -> None:
    with pytest.raises(InvalidPipelineError, match="nowhere"):
        Coders(graph_of(grouped)).coder_of(CoderId("nowhere"))


def test_no_key_in_what_is_no_kv() -> None:
    graph = graph_of(lambda p: p | beam.Impulse())
    with pytest.raises(InvalidPipelineError, match="not KVs"):
        Coders(graph).key_value_ids(output_of(graph, "Impulse"))


# Determinism


def key_coder_replaced(graph: Graph, name: str, coder: Coder) -> Graph:
    (input_,) = graph.transforms[named(graph, name)].inputs.values()
    kv = graph.coders[graph.pcollections[input_].coder]
    key, value = CoderId("key"), kv.components[1]
    return replace(
        graph,
        coders={
            **graph.coders,
            key: coder,
            graph.pcollections[input_].coder: Coder(urn=urns.CODER_KV, components=(key, value)),
        },
    )


def fast_primitives() -> Coder:
    """The coder of type Any: dicts and sets make its bytes depend on their order."""
    proto = proto_of(lambda p: p | beam.Create([{}]) | beam.Map(lambda x: x))
    (coder,) = [coder for coder in from_proto(proto).coders.values() if "pickled" in coder.urn]
    return coder


@pytest.mark.parametrize("name", ["group", "combine"])
def test_keys_without_deterministic_bytes_are_refused_by_step(name: str) -> None:
    def build(p: beam.Pipeline) -> None:
        pairs = p | beam.Create([("a", 1)])
        pairs | "combine" >> beam.CombinePerKey(sum)
        pairs | "group" >> beam.GroupByKey()

    graph = key_coder_replaced(graph_of(build), name, fast_primitives())
    coders = Coders(graph)
    assert name in [problem.where for problem in key_coder_problems(graph, coders)]
    with pytest.raises(InvalidPipelineError, match="not deterministic"):
        check_key_coders(graph, coders)
    check_key_coders(graph, coders, allow_non_deterministic_key_coders=True)


def test_what_beams_client_made_deterministic_passes() -> None:
    graph = graph_of(lambda p: p | beam.Create([(("a", 1), 1)]) | beam.GroupByKey())
    check_key_coders(graph, Coders(graph))


def grouped_by_fields(p: beam.Pipeline) -> None:
    """Its keys are rows of a type that is made up on the way; their fields may be anything."""
    p | beam.Create([1, 2]) | beam.GroupBy("numerator", "denominator")


def key_coder_of_rows() -> Any:
    graph = graph_of(grouped_by_fields)
    check_key_coders(graph, Coders(graph))
    (grouping,) = [t for t in graph.transforms.values() if t.urn == urns.GROUP_BY_KEY]
    (collection,) = grouping.inputs.values()
    coders = Coders(graph)
    key = coders.coder_of(coders.key_value_ids(collection)[0])
    assert not key.is_deterministic()  # else nothing would be shown here
    return key


@pytest.mark.parametrize("value", [7, "text", None, (1, ("a", 2.5)), [1, 2], {1}])
def test_rows_as_keys_are_read_by_the_coder_of_the_pipeline(value: object) -> None:
    coder = key_coder_of_rows()
    row = beam.Row(numerator=value, denominator=1)
    assert coder.decode(deterministic_key_coder(coder).encode(row)) == (value, 1)


def test_equal_rows_have_equal_bytes() -> None:
    """Sets are equal in whatever order they were filled, and with room for more."""
    few, many = {8, 0}, {8, 0} | set(range(100))
    many -= set(range(100)) - {8, 0}
    assert few == many
    encode = deterministic_key_coder(key_coder_of_rows()).encode
    rows = [beam.Row(numerator=value, denominator=1) for value in (few, many, {0, 8})]
    assert len(set(map(encode, rows))) == 1


def test_a_row_with_a_field_that_has_no_such_bytes_is_refused_when_it_comes() -> None:
    coder = deterministic_key_coder(key_coder_of_rows())
    with pytest.raises(TypeError, match="deterministically"):
        coder.encode(beam.Row(numerator=object(), denominator=1))


def test_other_coders_stay_as_they_are() -> None:
    coder = PickleCoder()
    assert deterministic_key_coder(coder) is coder


def test_key_coders_of_other_sdks_are_theirs() -> None:
    graph = key_coder_replaced(graph_of(grouped), "group", Coder(urn="other:sdk:coder:v1"))
    check_key_coders(graph, Coders(graph))


def test_rows_of_other_sdks_are_theirs() -> None:
    """Go's structs with a field of type ``int``, which is a logical type of its SDK."""
    field = schema_pb2.Field(name="A")
    field.type.logical_type.urn = "int"
    field.type.logical_type.representation.atomic_type = schema_pb2.INT64
    row = Coder(
        urn=urns.CODER_ROW, payload=schema_pb2.Schema(fields=[field], id="s").SerializeToString()
    )
    graph = key_coder_replaced(graph_of(grouped), "group", row)
    coders = Coders(graph)
    check_key_coders(graph, coders)
    key, _ = coders.key_value_ids(output_of(graph, "window"))
    assert not coders.is_known(key)
    with pytest.raises(UnsupportedFeatureError, match=r"row:v1: .*urn: \"int\""):
        coders.coder_of(key)


def test_a_grouping_of_what_is_no_kv_is_refused() -> None:
    proto = proto_of(grouped)
    graph = from_proto(proto)
    (input_,) = graph.transforms[named(graph, "group")].inputs.values()
    proto.components.pcollections[input_].coder_id = output_coder = "bytes"
    proto.components.coders[output_coder].spec.urn = urns.CODER_BYTES
    graph = from_proto(proto)
    with pytest.raises(InvalidPipelineError, match=r"group: .*not KVs"):
        check_key_coders(graph, Coders(graph), allow_non_deterministic_key_coders=True)
