"""Chains of very many transforms, which SDK harnesses could not run in one stage."""

from dataclasses import replace

import pytest

from beam_spark_runner.core import urns
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.graph.passes import fuse
from tests.golden.notation import parse


def chain(length: int, environment: str, *further: str) -> Graph:
    lines = ["Start: impulse() -> c0"]
    lines += [f"S{each}: pardo(c{each}) -> c{each + 1} @sdk" for each in range(length)]
    graph = parse("\n".join([*lines, *further]) + "\n")
    environments = {id_: replace(e, urn=environment) for id_, e in graph.environments.items()}
    return replace(graph, environments=environments)


def sizes(graph: Graph) -> list[int]:
    return [len(stage.transforms) for stage in fuse(graph, max_depth=10).stages]


@pytest.mark.parametrize("kind", [urns.ENVIRONMENT_PROCESS, urns.ENVIRONMENT_DOCKER])
def test_stages_of_sdk_harnesses_are_cut(kind: str) -> None:
    graph = chain(25, kind)
    assert sizes(graph) == [10, 10, 5]
    stages = fuse(graph, max_depth=10).stages
    assert [stage.input for stage in stages] == ["c0", "c10", "c20"]
    assert [stage.outputs for stage in stages] == [("c10",), ("c20",), ()]


def test_pythons_harness_has_frames_for_the_longest_chain() -> None:
    """Four of a thousand for each transform, in addition to its own and those of user code."""
    stages = fuse(chain(1_000, urns.ENVIRONMENT_PROCESS)).stages
    assert max(len(stage.transforms) for stage in stages) * 4 < 1_000 / 2


def test_stages_of_python_workers_are_not() -> None:
    assert sizes(chain(25, urns.ENVIRONMENT_EMBEDDED_PYTHON)) == [25]


def test_readers_side_by_side_are_no_chain() -> None:
    wide = [f"W{each}: pardo(c5) @sdk" for each in range(30)]
    assert sizes(chain(5, urns.ENVIRONMENT_PROCESS, *wide)) == [35]


def test_a_flatten_is_cut_where_its_longest_input_is() -> None:
    joined = [
        "All: flatten(c1, c9) -> all",
        "Use: pardo(all) -> used @sdk",
        "End: pardo(used) @sdk",
    ]
    assert sizes(chain(9, urns.ENVIRONMENT_PROCESS, *joined)) == [10, 2]
