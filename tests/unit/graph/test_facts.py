"""Facts about graphs, and their text form."""

import pytest

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import CoderId
from beam_spark_runner.graph import facts, passes
from beam_spark_runner.graph.dump import dump
from beam_spark_runner.graph.model import Coder, Graph
from tests.golden.notation import parse


@pytest.mark.parametrize(
    ("taken", "name"),
    [
        pytest.param((), "a", id="free"),
        pytest.param(("a",), "a~2", id="taken"),
        pytest.param(("a", "a~2"), "a~3", id="taken twice"),
    ],
)
def test_fresh(taken: tuple[str, ...], name: str) -> None:
    assert facts.fresh("a", taken) == name


def test_equal_coders_get_one_id() -> None:
    given = {CoderId("k"): Coder(urn=urns.CODER_BYTES), CoderId("l"): Coder(urn=urns.CODER_BYTES)}
    table = facts.CoderTable(given)
    assert table.add(Coder(urn=urns.CODER_BYTES)) == "k"
    pair = table.kv(CoderId("k"), CoderId("k"))
    assert table.kv(CoderId("k"), CoderId("k")) == pair
    assert table.kv(CoderId("k"), CoderId("l")) != pair
    assert given.keys() == {"k", "l"}, "the graph's own coders are untouched"


def test_a_new_coder_gets_an_id_that_is_free() -> None:
    table = facts.CoderTable({CoderId("double"): Coder(urn=urns.CODER_BYTES)})
    assert table.double() == "double~2"


def test_names_that_need_quotes_survive() -> None:
    text = (
        'Start: impulse() -> "my start"\n'
        '"Map(<lambda>)": pardo("main one"="my start") -> "a:b" @py\n'
    )
    graph = parse(text)
    assert list(graph.transforms) == ["Start", "Map(<lambda>)"]
    assert dump(graph) == text


def test_observers_see_every_pass() -> None:
    seen: list[str] = []
    graph = parse("Start: impulse() -> a\nUse: pardo(a) -> b @py")

    def observe(name: str, after: Graph) -> None:
        seen.append(f"{name} {len(after.stages)}")

    passes.run_passes(graph, passes.BATCH, observe)
    assert seen == [
        "validate 0",
        "lift_combiners 0",
        "expand_splittable 0",
        "recode_redistributed 0",
        "insert_fusion_breaks 0",
        "fuse 1",
    ]
