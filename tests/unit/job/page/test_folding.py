"""Composites, folded and unfolded."""

from beam_spark_runner.job.page.folding import ancestors, fold
from beam_spark_runner.job.page.page_query import EveryPath
from beam_spark_runner.observing.step_graph import EdgeKind, StepGraph
from tests.unit.job.page.observed import EVIL, GRAPH, node


def test_outermost_composites_are_folded() -> None:
    found = fold(GRAPH)
    assert [(node.path, node.is_composite) for node in found.nodes] == [
        ("Read", True),
        ("Rates", False),
        (EVIL, False),
        ("Sum", True),
    ]
    kinds = {(edge.source, edge.target): edge.kind for edge in found.edges}
    assert kinds["Read", EVIL] is EdgeKind.POINTWISE
    assert kinds["Rates", EVIL] is EdgeKind.SIDE_INPUT
    assert kinds[EVIL, "Sum"] is EdgeKind.EXCHANGE


def test_one_composite_is_unfolded() -> None:
    paths = [node.path for node in fold(GRAPH, {"Sum"}).nodes]
    assert paths == ["Read", "Rates", EVIL, "Sum/Group", "Sum/Merge"]


def test_everything_is_unfolded() -> None:
    assert [node.path for node in fold(GRAPH, EveryPath()).nodes] == [
        node.name for node in GRAPH.nodes
    ]


def test_slashes_in_brackets_are_parts_of_a_name() -> None:
    assert ancestors("Read/Map(<lambda at a/b.py:3>)") == ["Read"]
    assert ancestors("a)/b") == ["a)"]


def test_a_composite_in_which_there_is_one_other_composite_is_unfolded_with_it() -> None:
    graph = StepGraph((node("Count/PerKey/Group", "g"), node("Count/PerKey/Sum/Do", "s")))
    assert [each.path for each in fold(graph, {"Count"}).nodes] == [
        "Count/PerKey/Group",
        "Count/PerKey/Sum",
    ]
    one = StepGraph((node("Read/Do", "r"),))
    assert [each.path for each in fold(one, {"Read", "Nothing"}).nodes] == ["Read/Do"]
