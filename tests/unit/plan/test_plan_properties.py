"""Plans of random pipelines do what the pipelines say, however little fits into one Spark job."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from beam_spark_runner.core.ids import PCollectionId, StageId
from beam_spark_runner.graph import passes
from beam_spark_runner.graph.facts import ROOT_URNS
from beam_spark_runner.graph.model import Graph
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.levels import levels
from beam_spark_runner.plan.model import Delivery, Plan
from tests.examples import examples
from tests.golden.evaluate import Element, evaluate_graph, evaluate_plan, evaluate_stages
from tests.golden.random_graphs import graphs

BEFORE_FUSION = (passes.lift_combiners, passes.expand_splittable, passes.insert_fusion_breaks)


def made_by_stages(graph: Graph, data: dict[PCollectionId, Counter[Element]]) -> object:
    """Drop what the runner makes between stages, and what is empty."""
    roots = [t for t in graph.transforms.values() if t.urn in ROOT_URNS]
    between = {collection for root in roots for collection in root.outputs.values()}
    kept = {c for t in graph.transforms.values() for c in t.outputs.values()} - between
    return {collection: data[collection] for collection in sorted(kept) if data.get(collection)}


@settings(max_examples=examples(200))
@given(graph=graphs())
def test_each_pass_keeps_the_meaning_and_is_idempotent(graph: Graph) -> None:
    meant = evaluate_graph(graph)
    for run_pass in BEFORE_FUSION:
        graph = run_pass(graph)
        assert run_pass(graph) == graph
        got = evaluate_graph(graph)
        assert {collection: got[collection] for collection in meant} == meant
    fused = passes.fuse(graph)
    assert passes.fuse(fused) == fused
    in_stages = evaluate_stages(fused)
    everything = evaluate_graph(graph)
    assert {c: in_stages.get(c, Counter()) for c in everything} == everything


@settings(max_examples=examples(200))
@given(
    graph=graphs(environments=2),
    max_exchanges=st.sampled_from([1, 2, 12]),
    max_destinations=st.sampled_from([1, 2, 250]),
    max_copies=st.sampled_from([1, 2, 16]),
)
def test_a_plan_does_what_the_graph_says(
    graph: Graph, max_exchanges: int, max_destinations: int, max_copies: int
) -> None:
    ready = passes.fuse(passes.run_passes(graph, BEFORE_FUSION), max_copies=max_copies)
    plan = build(ready, max_exchanges=max_exchanges, max_destinations=max_destinations)
    assert made_by_stages(graph, evaluate_plan(plan)) == made_by_stages(
        graph, evaluate_graph(graph)
    )
    check_promises(plan, max_exchanges, max_destinations)


def check_promises(plan: Plan, max_exchanges: int, max_destinations: int) -> None:
    """Hold the plan against the docstrings of its model."""
    arriving = Counter(
        (destination.arriving, destination.access_pattern)
        for destination in plan.destinations.values()
        if destination.delivery is Delivery.SIDE_INPUT
    )
    assert set(arriving.values()) <= {1}, "readers share the rows of a side input"
    assert 0 not in plan.destinations
    for segment in plan.segments:
        exchanges = [level for level in segment.levels if level.has_exchange]
        assert len(exchanges) <= max_exchanges
        assert all(len(level.stages) <= max_destinations for level in exchanges)
        assert all(level.stages for level in segment.levels)
    check_that_stable_input_is_written_down(plan)
    for stage in plan.stages.values():
        assert (stage.input in stage.outputs) == (not stage.transforms)
        for number, id_ in enumerate(stage.transforms):
            transform = plan.graph.transforms[id_]
            assert not (number and transform.requires_stable_input)
            assert transform.environment in (None, stage.environment)


def check_that_stable_input_is_written_down(plan: Plan) -> None:
    main = {destination.stage: destination for destination in plan.destinations.values()}
    for segment in plan.segments:
        for id_ in (stage for level in segment.levels for stage in level.stages):
            stage, destination = plan.stages[id_], main[id_]
            if not any(plan.graph.transforms[t].requires_stable_input for t in stage.transforms):
                continue
            assert destination.delivery in (Delivery.POINTWISE, Delivery.REDISTRIBUTE_BY_SIZE)
            assert destination.id not in segment.impulses
            assert destination.id not in segment.writes
            writers = [other.id for other in plan.segments if destination.id in other.writes]
            assert all(writer < segment.id for writer in writers)
            assert set(segment.reads.get(destination.id, ())) == set(writers)
            makers = [s.id for s in plan.stages.values() if destination.arriving in s.outputs]
            assert bool(makers) == bool(writers)


@settings(max_examples=examples(100))
@given(graph=graphs(), max_exchanges=st.sampled_from([1, 2, 12]))
def test_a_plan_that_streams_is_a_chain_of_segments(graph: Graph, max_exchanges: int) -> None:
    ready = passes.fuse(passes.run_passes(graph, BEFORE_FUSION))
    plan = build(ready, max_exchanges=max_exchanges, is_streaming=True)
    in_one = build(ready, max_exchanges=1_000, is_streaming=True)
    assert levels(plan) == levels(in_one), "only depth cuts"
    exchanges = sum(level.has_exchange for level in levels(plan))
    assert len(plan.segments) == max(bool(levels(plan)), -(-exchanges // max_exchanges))
    segment_of: dict[StageId, int] = {}
    for number, segment in enumerate(plan.segments):
        before = plan.segments[:number]
        assert segment.first_level == sum(len(each.levels) for each in before)
        for level in segment.levels:
            segment_of.update(dict.fromkeys(level.stages, number))
        assert not segment.side_inputs
        if number:
            assert all(level.has_exchange for level in segment.levels)
            assert not segment.impulses
            assert all(writers == (number - 1,) for writers in segment.reads.values())
            assert set(segment.reads) <= set(plan.segments[number - 1].writes)
    for number, segment in enumerate(plan.segments):
        crossing = {
            dest
            for id_, stage in plan.stages.items()
            for collection in stage.outputs
            for dest in plan.consumers.get(collection, ())
            if (reader := plan.destinations[dest].stage) is not None
            and segment_of[id_] <= number < segment_of[reader]
            and plan.destinations[dest].delivery is not Delivery.SIDE_INPUT
        }
        assert {
            dest
            for dest in segment.writes
            if plan.destinations[dest].delivery is not Delivery.SIDE_INPUT
        } == crossing
