"""The manifest with which a changed pipeline begins."""

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.driving.shard_migration import empty_side_inputs, migration_after
from beam_spark_runner.graph.passes import STREAMING, run_passes
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.compatibility import stage_places, step_names
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.recovery.manifest import Manifest
from beam_spark_runner.recovery.migration import PipelineVersion
from beam_spark_runner.scheduling.finish import Finishing
from tests.golden.notation import parse

BEFORE = """Events: test_stream() -> events
Pair: pardo(events) -> pairs @py
Start: impulse() -> start
Key: pardo(start) -> keyed @py
Group: group_by_key(keyed) -> groups
Rates: pardo(groups) -> rates @py
keyed :: kv<bytes,bytes>
groups :: kv<bytes,iterable<bytes>>
"""
NOW = BEFORE.replace("pardo(events) ->", "pardo(events, rates as iterable) ->")


def version(given: str) -> tuple[Plan, PipelineVersion]:
    plan = build(run_passes(parse(given), STREAMING), is_streaming=True)
    places = stage_places(plan, lambda _: [], lambda *_: False)
    return plan, PipelineVersion(plan=places, steps=step_names(plan))


def test_a_new_side_input_whose_producers_have_finished_is_ready_and_empty() -> None:
    _, before = version(BEFORE)
    bounded = {place.dest: place for name, place in before.plan.items() if name != "step Pair"}
    last = Manifest(
        epoch=9,
        fence=1,
        lineage="main",
        parent=8,
        partitions=2,
        key_groups=128,
        plan=before.plan,
        steps=before.steps,
        watermarks_us={before.plan["step Pair"].dest: 5, **dict.fromkeys(bounded, MAX_US)},
        finished={
            dest: frozenset(range(2 if place.is_exchanged else 1))
            for dest, place in bounded.items()
        },
        next_clock_us=1,
    )
    plan, now = version(NOW)
    finishing = Finishing(plan, partitions=2)
    found = migration_after(last, now, finishing, 2)
    assert found.watermarks_us[now.plan["step Pair"].dest] == 5
    name = "side input of Rates [iterable]"
    assert found.watermarks_us[now.plan[name].dest] == MAX_US
    assert empty_side_inputs(last, now, finishing, found.finished) == [name]
    later = migration_after(found, now, finishing, 2)
    assert empty_side_inputs(found, now, finishing, later.finished) == []
