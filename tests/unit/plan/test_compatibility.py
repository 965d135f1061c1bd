"""By what stages are known in later runs, and what they store."""

import pytest

from beam_spark_runner.graph.passes import STREAMING, run_passes
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.compatibility import StoredStage, stage_places
from tests.golden.notation import parse

GIVEN = """Events: test_stream() -> events
Pair: pardo(events) -> pairs @py
Sum: pardo(pairs) -> sums @py state=sum
Group: group_by_key(sums) -> groups
Count: pardo(groups) -> counted @py state=count timers=due
pairs :: kv<bytes,bytes>, fixed
sums :: kv<bytes,bytes>, fixed
groups :: kv<bytes,iterable<bytes>>, fixed
counted :: kv<bytes,bytes>
"""
WITH_SIDE_INPUT = """Events: test_stream() -> events
Rates: impulse() -> rates
Look: pardo(events, rates as iterable) -> found @py
rates :: bytes, fixed
"""


SIDE = "side input of Rates [iterable]"


def found(given: str, max_exchanges: int = 12) -> dict[str, StoredStage]:
    graph = run_passes(parse(given), STREAMING)
    plan = build(graph, max_exchanges=max_exchanges, is_streaming=True)
    return dict(stage_places(plan, lambda _: [], lambda *_: False))


def test_each_stage_and_what_it_stores() -> None:
    places = found(GIVEN)
    assert places.keys() == {"step Pair", "step Sum", "step Group"}
    assert places["step Pair"].kept == ""
    assert not places["step Pair"].is_exchanged
    assert places["step Sum"].kept.startswith("state sum, ")
    group = places["step Group"]
    assert group.kept.startswith("groups, state count, timer due, ")
    assert (group.level, group.is_exchanged, group.transform) == (2, True, "Count")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("state=count", "state=number"),
        ("timers=due", "timers=late"),
        ("timers=due", "timers=due stable"),
        ("timers=due", "timers=due sorted"),
        ("kv<bytes,iterable<bytes>>, fixed", "kv<bytes,iterable<bytes>>, sliding"),
        ("kv<bytes,iterable<bytes>>, fixed", "kv<bytes,iterable<bytes>>, fixed accumulating"),
    ],
)
def test_what_changes_is_noticed(before: str, after: str) -> None:
    assert found(GIVEN) == found(GIVEN)
    changed = found(GIVEN.replace(before, after))
    assert changed["step Group"].kept != found(GIVEN)["step Group"].kept


def test_what_a_side_input_stores() -> None:
    given = WITH_SIDE_INPUT
    places = found(given)
    assert places[SIDE].kept.startswith("a side input in parts, ")
    assert places["step Look"].kept.startswith("elements that wait for side inputs, ")
    assert places["step Rates"].is_fed
    assert places["step Rates"].kept == ""
    together = given.replace("bytes, fixed", "bytes, fixed trigger=after_count")
    assert found(together)[SIDE].kept.startswith("a side input, ")
    sliding = found(given.replace("bytes, fixed", "bytes, sliding"))
    assert sliding[SIDE].kept != places[SIDE].kept


def test_levels_are_counted_over_all_segments() -> None:
    deep = GIVEN.replace("Group:", "Spread: reshuffle(sums) -> spread\nGroup:")
    deep = deep.replace("group_by_key(sums)", "group_by_key(spread)")
    deep += "spread :: kv<bytes,bytes>, fixed\n"
    assert found(deep)["step Group"].level == 3
    assert found(deep, max_exchanges=1) == found(deep)


def test_a_side_input_is_named_after_what_gives_it() -> None:
    """Whoever looks it up, and in which order."""
    given = """Events: test_stream() -> events
Both: impulse() -> seed
Split: pardo(seed) -> a, b @py
First: pardo(events, a as iterable, b as multimap) -> found @py
Second: pardo(events, b as iterable) -> others @py
a :: bytes, fixed
b :: kv<bytes,bytes>, fixed
"""
    names = {name for name in found(given) if name.startswith("side input")}
    assert names == {
        "side input of Split [out0] [iterable]",
        "side input of Split [out1] [multimap]",
        "side input of Split [out1] [iterable]",
    }


def test_the_forms_of_states_count() -> None:
    graph = run_passes(parse(GIVEN), STREAMING)
    plan = build(graph, is_streaming=True)

    def kept(form: str) -> str:
        return stage_places(plan, lambda _: [(form, [])], lambda *_: False)["step Sum"].kept

    assert kept("sum: bag").startswith("state sum, ")
    assert kept("sum: bag") != kept("sum: combining")


def test_maps_in_bags_count_and_change_no_digest() -> None:
    graph = run_passes(parse(GIVEN), STREAMING)
    plan = build(graph, is_streaming=True)
    *described, digest = found(GIVEN)["step Sum"].kept.split(", ")
    in_bags = stage_places(plan, lambda _: [], lambda _, transform: transform.name == "Sum")
    assert in_bags["step Sum"].kept.split(", ") == [*described, "maps in bags", digest]
    assert "maps in bags" not in in_bags["step Group"].kept


def test_stable_input_is_described_with_the_side_inputs_that_it_has_waited_for() -> None:
    places = found(WITH_SIDE_INPUT.replace("found @py", "found @py stable"))
    described = "elements that wait for side inputs, "
    assert places["step Look/Wait"].kept.startswith(described)
    assert places["step Look"].kept.startswith(f"{described}stable input, ")


def test_digests_in_existing_checkpoints_stay_the_same() -> None:
    kept = {name: each.kept for name, each in found(GIVEN).items() if each.kept}
    assert kept == {
        "step Group": "groups, state count, timer due, d32a7eb1",
        "step Sum": "state sum, f949cdb6",
    }
