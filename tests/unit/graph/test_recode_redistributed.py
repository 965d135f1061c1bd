"""Coders that a Reshuffle's input and output have, compared part by part."""

from dataclasses import replace

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import CoderId
from beam_spark_runner.graph.model import Coder, Graph
from beam_spark_runner.graph.passes.recode_redistributed import recode_redistributed
from tests.golden.notation import parse

GIVEN = """Start: impulse() -> start
Pair: pardo(start) -> pairs @py
Spread: reshuffle(pairs) -> spread
Use: pardo(spread) -> used @py
pairs :: kv<bytes,bytes>
spread :: kv<bytes,varint>
"""


def with_shared_parts(depth: int, last: str) -> Graph:
    """Give both sides of the Reshuffle coders whose parts are shared at each level."""
    graph = parse(GIVEN)
    coders = dict(graph.coders)
    for name, urn in (("pairs", urns.CODER_BYTES), ("spread", last)):
        coders[CoderId(f"{name}0")] = Coder(urn=urn)
        for number in range(depth):
            parts = (CoderId(f"{name}{number}"),) * 2
            coders[CoderId(f"{name}{number + 1}")] = Coder(urn=urns.CODER_KV, components=parts)
    collections = {
        id_: replace(each, coder=CoderId(f"{id_}{depth}")) if id_ in ("pairs", "spread") else each
        for id_, each in graph.pcollections.items()
    }
    return replace(graph, coders=coders, pcollections=collections)


def test_shared_parts_are_compared_once() -> None:
    alike = with_shared_parts(60, urns.CODER_BYTES)
    assert recode_redistributed(alike) is alike
    other = recode_redistributed(with_shared_parts(60, urns.CODER_DOUBLE))
    assert "Spread/Recode" in other.transforms
