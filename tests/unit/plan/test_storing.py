"""What each kind of stage stores from epoch to epoch."""

import pytest

from beam_spark_runner.graph.passes import BATCH, STREAMING, run_passes
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.feeding import inputs
from beam_spark_runner.plan.model import Delivery, Plan, Stored
from beam_spark_runner.plan.storing import lags
from tests.golden.notation import parse

SOURCES = """
    Start: impulse() -> start
    Read: pardo(start) -> pairs @py
    Group: group_by_key(pairs) -> groups
    Rates: pardo(start) -> rates @py
    pairs :: kv<bytes,bytes>, fixed
    groups :: kv<bytes,iterable<bytes>>, fixed
    rates :: bytes, fixed
"""


def plan_of(step: str, *, is_streaming: bool = True) -> Plan:
    graph = parse(SOURCES + f"Use: pardo({step}" + "\n used :: kv<bytes,bytes>, fixed")
    return build(run_passes(graph, STREAMING if is_streaming else BATCH), is_streaming=is_streaming)


def stores_of(plan: Plan, step: str) -> frozenset[Stored]:
    """Return what the stage stores that has a step."""
    (stores,) = (
        stage.stores
        for stage in plan.stages.values()
        if any(plan.graph.transforms[id_].name == step for id_ in stage.transforms)
    )
    return stores


@pytest.mark.parametrize(
    ("step", "stores"),
    [
        ("pairs) -> used @py", set()),
        ("pairs) -> used @py state=count", {Stored.KEYS}),
        ("pairs) -> used @py timers=due", {Stored.KEYS}),
        ("pairs) -> used @py sorted", {Stored.KEYS, Stored.UNSORTED}),
        ("pairs) -> used @py state=count sorted", {Stored.KEYS, Stored.UNSORTED}),
        ("pairs) -> used @py stable", {Stored.UNCOMMITTED}),
        ("pairs) -> used @py state=count stable", {Stored.KEYS, Stored.UNCOMMITTED}),
        (
            "pairs) -> used @py state=count stable sorted",
            {Stored.KEYS, Stored.UNCOMMITTED, Stored.UNSORTED},
        ),
        ("groups) -> used @py", {Stored.GROUPS}),
        ("groups) -> used @py state=count", {Stored.GROUPS, Stored.KEYS}),
        # What is sorted or stable comes from a separate stage, which has the groups.
        ("groups) -> used @py state=count stable", {Stored.KEYS, Stored.UNCOMMITTED}),
        ("groups, rates as iterable) -> used @py", {Stored.GROUPS, Stored.UNREADY}),
        ("pairs, rates as iterable) -> used @py", {Stored.UNREADY}),
        # Elements wait in front of these, in a separate stage.
        ("pairs, rates as iterable) -> used @py state=count", {Stored.KEYS}),
        ("pairs, rates as iterable) -> used @py stable", {Stored.UNCOMMITTED}),
    ],
)
def test_what_a_stage_stores(step: str, stores: set[Stored]) -> None:
    plan = plan_of(step)
    assert stores_of(plan, "Use") == stores
    assert stores_of(plan, "Read") == set()
    assert lags(stores_of(plan, "Use")) == (Stored.UNCOMMITTED in stores)


@pytest.mark.parametrize(
    ("flag", "stores"), [("", set()), (" stable", {Stored.UNCOMMITTED})], ids=["", "stable"]
)
def test_what_a_splittable_stage_stores(flag: str, stores: set[Stored]) -> None:
    plan = plan_of(f"pairs, rates as iterable) -> used @py restriction=range{flag}")
    (splittable,) = (stage for stage in plan.stages.values() if stage.is_splittable)
    assert splittable.side_inputs
    assert splittable.stores == {Stored.RESTRICTIONS, *stores}
    assert not lags(splittable.stores)
    # The elements wait where restrictions are made.
    assert [stage.stores for stage in plan.stages.values() if stage.side_inputs] == [
        {Stored.UNREADY},
        splittable.stores,
    ]


@pytest.mark.parametrize("flag", ["state=count", "stable"])
def test_elements_wait_in_a_separate_stage(flag: str) -> None:
    plan = plan_of(f"groups, rates as iterable) -> used @py {flag}")
    assert stores_of(plan, "Use/Wait") == {Stored.GROUPS, Stored.UNREADY}


def test_what_the_stage_of_a_side_input_stores() -> None:
    plan = plan_of("pairs, rates as iterable) -> used @py")
    views = [
        plan.stages[id_].stores
        for id_, dest in inputs(plan).items()
        if plan.destinations[dest].delivery is Delivery.SIDE_INPUT
    ]
    assert views == [{Stored.VIEW}]


def test_batch_stores_nothing() -> None:
    for step in ("groups, rates as iterable) -> used @py state=count", "pairs) -> used @py stable"):
        plan = plan_of(step, is_streaming=False)
        assert not any(stage.stores for stage in plan.stages.values())
