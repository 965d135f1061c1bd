"""What crosses a stage's edges against ``standard_coders.yaml``, which all SDKs agree on."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from apache_beam.portability import api
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import CoderId
from beam_spark_runner.graph.model import Coder, Graph
from beam_spark_runner.portable.coders import Coders

SPECS = Path(api.__file__).with_name("standard_coders.yaml")

PARSERS: Mapping[str, Callable[..., Any]] = {
    "bytes": lambda x: x.encode(),
    "bool": lambda x: x,
    "string_utf8": lambda x: x,
    "varint": lambda x: x,
    "double": float,
    "kv": lambda x, key, value: (key(x["key"]), value(x["value"])),
    "iterable": lambda x, element: [element(each) for each in x],
    "global_window": lambda x: GlobalWindow(),
    "interval_window": lambda x: IntervalWindow(
        Timestamp(micros=(x["end"] - x["span"]) * 1000), Timestamp(micros=x["end"] * 1000)
    ),
    "windowed_value": lambda x, value, window: windowed_value.create(
        value(x["value"]), x["timestamp"] * 1000, tuple(window(each) for each in x["windows"])
    ),
}


def kind(spec: Mapping[str, Any]) -> str:
    return str(spec["urn"]).split(":")[2]


def is_ours(spec: Mapping[str, Any]) -> bool:
    return (
        kind(spec) in PARSERS
        and not spec.get("non_deterministic")
        and all(map(is_ours, spec.get("components", ())))
    )


def parser(spec: Mapping[str, Any]) -> Callable[[Any], Any]:
    components = [parser(each) for each in spec.get("components", ())]
    return lambda x: PARSERS[kind(spec)](x, *components)


def graph_of(spec: Mapping[str, Any]) -> tuple[Graph, CoderId]:
    """A graph that holds the coder and its parts, as ``from_proto`` would give it."""
    coders: dict[CoderId, Coder] = {}

    def add(part: Mapping[str, Any]) -> CoderId:
        components = tuple(add(each) for each in part.get("components", ()))
        id_ = CoderId(str(len(coders)))
        coders[id_] = Coder(urn=part["urn"], components=components)
        return id_

    id_ = add(spec)
    return Graph(transforms={}, pcollections={}, coders=coders, windowings={}), id_


def cases() -> Iterator[Any]:
    with SPECS.open(encoding="utf-8") as file:
        for number, section in enumerate(yaml.safe_load_all(file)):
            if is_ours(section["coder"]):
                for is_nested in [section["nested"]] if "nested" in section else [False, True]:
                    yield pytest.param(
                        section,
                        is_nested,
                        id=f"{number} {kind(section['coder'])}{' nested' * is_nested}",
                    )


CASES = list(cases())


def test_all_kinds_that_cross_edges_are_there() -> None:
    assert {kind(case.values[0]["coder"]) for case in CASES} == set(PARSERS)


@pytest.mark.parametrize(("section", "is_nested"), CASES)
def test_encodings(section: Mapping[str, Any], is_nested: bool) -> None:
    graph, id_ = graph_of(section["coder"])
    impl = Coders(graph).coder_of(id_).get_impl()
    encode = impl.encode_nested if is_nested else impl.encode
    decode = impl.decode_nested if is_nested else impl.decode
    parse = parser(section["coder"])
    for text, json_value in section["examples"].items():
        coded, value = text.encode("latin1"), parse(json_value)
        assert encode(value) == coded
        assert encode(decode(coded)) == coded


@pytest.mark.parametrize(
    ("section", "is_nested"),
    [case for case in CASES if case.values[0]["coder"]["urn"] == urns.CODER_KV],
)
def test_key_and_value_apart_make_the_kv(section: Mapping[str, Any], is_nested: bool) -> None:
    """Edges write key and value to columns of their own; together they are Beam's KV."""
    graph, id_ = graph_of(section["coder"])
    coders = Coders(graph)
    key, value = (coders.coder_of(part).get_impl() for part in graph.coders[id_].components)
    parse = parser(section["coder"])
    for text, json_value in section["examples"].items():
        one, other = parse(json_value)
        encode_value = value.encode_nested if is_nested else value.encode
        assert key.encode_nested(one) + encode_value(other) == text.encode("latin1")
