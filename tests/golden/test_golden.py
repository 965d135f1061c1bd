"""Each <pass>.txt holds pairs of what a pass gets and what it gives: its specification.

A case may end in lines ``# error:`` in place of a graph. Cases stand between
``===`` lines, input and expectation between ``---``. ``mixed_windows.txt`` is what
``validate`` says of Flattens. ``explain.txt`` goes through all passes and
``plan.build``; ``# limits: exchanges destinations`` there.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from beam_spark_runner.core import urns
from beam_spark_runner.core.errors import PipelineRefusedError
from beam_spark_runner.core.ids import PCollectionId
from beam_spark_runner.graph import passes
from beam_spark_runner.graph.dump import dump
from beam_spark_runner.graph.facts import ROOT_URNS
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.explain import explain
from tests.golden.evaluate import evaluate_graph, evaluate_plan, evaluate_stages
from tests.golden.notation import parse

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    given: str
    expected: str
    errors: list[str]
    comments: dict[str, str]


def cases(stem: str) -> list[object]:
    return list(read_cases(stem))


def read_cases(stem: str) -> Iterator[object]:
    for text in (HERE / f"{stem}.txt").read_text().split("\n===\n"):
        comments, errors, parts = {}, [], [[], []]  # type: ignore[var-annotated]
        part = 0
        for line in text.splitlines():
            key, _, value = line.partition(": ")
            if line == "---":
                part += 1
            elif key == "# error":
                errors.append(value)
            elif key in ("# title", "# note", "# limits"):
                comments[key.removeprefix("# ")] = value
            else:
                assert not line.startswith("#"), line
                parts[part].append(line)
        assert part == 1, text
        given, expected = ("".join(f"{line}\n" for line in lines) for lines in parts)
        yield pytest.param(Case(given, expected, errors, comments), id=comments["title"])


def made_between_stages(graph: Graph) -> set[PCollectionId]:
    roots = (t for t in graph.transforms.values() if t.urn in ROOT_URNS)
    return {collection for root in roots for collection in root.outputs.values()}


def check(name: str, case: Case) -> None:
    run_pass = getattr(passes, name)
    before = parse(case.given)
    assert dump(before) == case.given, "the input is not written as dump writes it"
    if case.errors:
        with pytest.raises(PipelineRefusedError) as refused:
            run_pass(before)
        assert [str(problem) for problem in refused.value.problems] == case.errors
        return
    after = run_pass(before)
    assert dump(after) == case.expected
    assert dump(before) == case.given, "the pass changed its input"
    assert run_pass(after) == after, "a second run changes more"

    meant = evaluate_graph(before)
    # The parts of an unzipped Flatten mean something in their stages only.
    got = evaluate_stages(after) if after.stages else evaluate_graph(after)
    assert {collection: got.get(collection, Counter()) for collection in meant} == meant


@pytest.mark.parametrize("case", cases("validate"))
def test_validate(case: Case) -> None:
    check("validate", case)


@pytest.mark.parametrize("case", cases("mixed_windows"))
def test_mixed_windows(case: Case) -> None:
    check("validate", case)


@pytest.mark.parametrize("case", cases("stabilize_moves"))
def test_stabilize_moves(case: Case) -> None:
    check("stabilize_moves", case)


@pytest.mark.parametrize("case", cases("refuse_unstreamable"))
def test_refuse_unstreamable(case: Case) -> None:
    check("refuse_unstreamable", case)


@pytest.mark.parametrize("case", cases("await_side_inputs"))
def test_await_side_inputs(case: Case) -> None:
    check("await_side_inputs", case)


@pytest.mark.parametrize("case", cases("lift_combiners"))
def test_lift_combiners(case: Case) -> None:
    check("lift_combiners", case)


@pytest.mark.parametrize("case", cases("expand_splittable"))
def test_expand_splittable(case: Case) -> None:
    check("expand_splittable", case)


@pytest.mark.parametrize("case", cases("truncate_restrictions"))
def test_truncate_restrictions(case: Case) -> None:
    check("truncate_restrictions", case)


@pytest.mark.parametrize("case", cases("recode_redistributed"))
def test_recode_redistributed(case: Case) -> None:
    check("recode_redistributed", case)


@pytest.mark.parametrize("case", cases("insert_fusion_breaks"))
def test_insert_fusion_breaks(case: Case) -> None:
    check("insert_fusion_breaks", case)


@pytest.mark.parametrize("case", cases("fuse"))
def test_fuse(case: Case) -> None:
    check("fuse", case)


@pytest.mark.parametrize("case", cases("explain"))
def test_explain(case: Case) -> None:
    before = parse(case.given)
    exchanges, destinations = map(int, case.comments.get("limits", "12 250").split())
    streams = any(each.urn == urns.TEST_STREAM for each in before.transforms.values())
    graph = passes.run_passes(before, passes.STREAMING if streams else passes.BATCH)
    plan = build(
        graph, max_exchanges=exchanges, max_destinations=destinations, is_streaming=streams
    )
    assert explain(plan) == case.expected

    meant, got = evaluate_graph(before), evaluate_plan(plan)
    for collection in meant.keys() - made_between_stages(before):
        assert got.get(collection, Counter()) == meant[collection]
