"""Which tasks have finished, by what they report and by what feeds them."""

from collections.abc import Mapping
from functools import cache

import pytest

from beam_spark_runner.graph.passes import STREAMING, run_passes
from beam_spark_runner.plan.build import build
from beam_spark_runner.plan.feeding import inputs
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.scheduling.attempts import Report
from beam_spark_runner.scheduling.finish import Finished, Finishing
from tests.golden.notation import parse

BOTH = frozenset({0, 1})
FIRST = frozenset({0})
# Events are grouped, and look up rates; a bounded branch is grouped twice.
GIVEN = """Events: test_stream() -> events
Pair: pardo(events, rates as iterable) -> pairs @py
Group: group_by_key(pairs) -> groups
Count: pardo(groups) -> counted @py state=count timers=due
Rates: impulse() -> seed
Make: pardo(seed) -> rates @py
Start: impulse() -> start
Key: pardo(start) -> keyed @py
First: group_by_key(keyed) -> firsts
Between: pardo(firsts) -> again @py
Second: group_by_key(again) -> seconds
Last: pardo(seconds) -> last @py
events :: kv<bytes,bytes>, fixed
pairs :: kv<bytes,bytes>, fixed
groups :: kv<bytes,iterable<bytes>>, fixed
counted :: kv<bytes,bytes>
keyed :: kv<bytes,bytes>
firsts :: kv<bytes,iterable<bytes>>
again :: kv<bytes,bytes>
seconds :: kv<bytes,iterable<bytes>>
"""


@cache
def plan(max_exchanges: int = 12) -> Plan:
    graph = run_passes(parse(GIVEN), STREAMING)
    return build(graph, max_exchanges=max_exchanges, is_streaming=True)


def dest(name: str) -> int:
    """Return the destination that the stage of a name reads."""
    (found,) = (id_ for stage, id_ in inputs(plan()).items() if plan().stages[stage].name == name)
    return int(found)


def finishing() -> Finishing:
    return Finishing(plan(), partitions=2)


def reports(finished: Mapping[str, frozenset[int]]) -> list[Report]:
    """Return what two tasks report, if each says which stages have finished in it."""
    return [
        Report(
            level=0,
            partition=partition,
            attempt=1,
            finished=frozenset(dest(name) for name, done in finished.items() if partition in done),
        )
        for partition in (0, 1)
    ]


def after(finished: Mapping[str, frozenset[int]], before: Finished | None = None) -> Finished:
    return finishing().finished_after(before or {}, reports(finished))


IMPULSES = {"Make": FIRST, "Key": FIRST}
RATES = {**IMPULSES, "side input of Pair": BOTH}
BOUNDED = {**RATES, "Between": BOTH, "Last": BOTH}
ALL = {**BOUNDED, "Pair": FIRST, "Count": BOTH}


@pytest.mark.parametrize(
    ("finished", "levels"),
    [
        pytest.param({}, range(3), id="nothing"),
        pytest.param(IMPULSES, range(3), id="a level of which a stage goes on"),
        pytest.param(BOUNDED, range(2), id="the last one"),
        pytest.param({**RATES, "Pair": FIRST}, range(1, 3), id="the first one"),
        pytest.param({**RATES, "Pair": FIRST, "Count": FIRST}, range(1, 3), id="a task of a stage"),
        pytest.param({**RATES, "Pair": FIRST, "Count": BOTH, "Between": BOTH}, range(2, 3), id="2"),
        pytest.param(ALL, range(0), id="all"),
    ],
)
def test_levels_that_still_have_to_run(
    finished: Mapping[str, frozenset[int]], levels: range
) -> None:
    assert finishing().levels(after(finished)) == levels
    assert len(plan(max_exchanges=1).segments) == 2
    in_segments = Finishing(plan(max_exchanges=1), partitions=2)
    assert in_segments.finished_after({}, reports(finished)) == after(finished)
    assert in_segments.levels(after(finished)) == levels


def test_an_epoch_records_what_is_confirmed_by_upstream() -> None:
    assert after({**RATES, "Pair": FIRST, "Count": frozenset({1})}) == {
        dest("Make"): FIRST,
        dest("Key"): FIRST,
        dest("side input of Pair"): BOTH,
        dest("Pair"): FIRST,
        dest("Count"): {1},
    }


@pytest.mark.parametrize(
    ("finished", "not_yet"),
    [
        pytest.param({**IMPULSES, "Count": BOTH}, "Count", id="its input is not"),
        pytest.param({"Make": FIRST, "Pair": FIRST}, "Pair", id="its side input is not"),
        pytest.param(
            {"Key": FIRST, "Between": FIRST, "Last": BOTH}, "Last", id="a task that feeds it is not"
        ),
    ],
)
def test_a_watermark_at_the_end_is_not_enough(
    finished: Mapping[str, frozenset[int]], not_yet: str
) -> None:
    assert dest(not_yet) not in after(finished)


def test_what_has_finished_need_not_report_again() -> None:
    before = after(BOUNDED)
    assert after({"Pair": FIRST}, before) == {**before, dest("Pair"): FIRST}


def test_stages_that_finish_before_the_others() -> None:
    assert finishing().finished_early(after(IMPULSES)) == []
    assert finishing().finished_early(after({"Key": FIRST, "Between": FIRST})) == ["Between"]
    assert finishing().finished_early(after(ALL)) == []


def test_an_earlier_run_that_contradicts_the_plan() -> None:
    assert finishing().contradictions(after(BOUNDED)) == ()
    assert finishing().contradictions({dest("Last"): BOTH}) == (
        "Last has finished, although a step that feeds it has not",
    )


KNOWN = {
    **dict.fromkeys(("Pair", "Make", "Key"), False),
    **dict.fromkeys(("Count", "Between", "Last", "side input of Pair"), True),
}
"""Whether the stages have as many tasks as an exchange has partitions."""


def known(**changes: bool) -> dict[int, bool]:
    return {dest(name): flag for name, flag in {**KNOWN, **changes}.items()}


@pytest.mark.parametrize(
    ("done", "partitions", "expected"),
    [
        pytest.param(FIRST, 4, {0, 1}, id="from 2 to 4"),
        pytest.param(FIRST, 1, None, id="from 2 to 1, of which one has not"),
        pytest.param(BOTH, 1, {0}, id="from 2 to 1"),
        pytest.param(FIRST, 3, {0}, id="from 2 to 3, one of which gets keys of both"),
    ],
)
def test_what_has_finished_with_other_partitions(
    done: frozenset[int], partitions: int, expected: set[int] | None
) -> None:
    finished = after({**IMPULSES, "side input of Pair": BOTH, "Pair": FIRST, "Count": done})
    now = Finishing(plan(), partitions)
    found = now.finished_in_this_plan(finished, known(), previous_partitions=2, groups=12)
    assert found.get(dest("Count")) == expected
    assert found[dest("Pair")] == FIRST  # its level has one task, however many partitions there are
    assert found[dest("side input of Pair")] == set(range(partitions))
    assert not now.contradictions(found)


@pytest.mark.parametrize(
    ("name", "was_exchanged", "done", "expected"),
    [
        pytest.param("Make", True, BOTH, {0}, id="all tasks of an exchange, now the only one"),
        pytest.param("Make", True, FIRST, None, id="some of them"),
        pytest.param("Between", False, FIRST, {0, 1, 2}, id="the only one, now all"),
    ],
)
def test_what_has_finished_before_or_after_an_exchange_that_came_or_went(
    name: str, was_exchanged: bool, done: frozenset[int], expected: set[int] | None
) -> None:
    finished = {**dict.fromkeys(map(dest, ("Key", "Make")), FIRST), dest(name): done}
    flags = {**known(), dest(name): was_exchanged}
    found = Finishing(plan(), 3).finished_in_this_plan(
        finished, flags, previous_partitions=2, groups=12
    )
    assert found.get(dest(name)) == expected


def test_new_stages_have_finished_if_all_that_feeds_them_has() -> None:
    """Else what comes after them would have finished, although they had not."""
    new = ("Between", "Last", "side input of Pair")
    flags = {id_: flag for id_, flag in known().items() if id_ not in map(dest, new)}
    finished = {dest("Make"): FIRST, dest("Key"): FIRST}
    found = finishing().finished_in_this_plan(finished, flags, previous_partitions=2, groups=12)
    assert found == {**finished, **{dest(name): BOTH for name in new}}
    assert not finishing().contradictions(found)
    # One that the driver feeds has not begun; nor have those that come after it.
    flags.pop(dest("Make"))
    found = finishing().finished_in_this_plan(
        {dest("Key"): FIRST}, flags, previous_partitions=2, groups=12
    )
    assert dest("side input of Pair") not in found
    assert dest("Make") not in found
