"""What a changed pipeline goes on from."""

import dataclasses

import pytest

from beam_spark_runner.plan.compatibility import StoredStage
from beam_spark_runner.recovery.epoch_writes import EpochWrite
from beam_spark_runner.recovery.manifest import Manifest, View, ViewId
from beam_spark_runner.recovery.migration import (
    PipelineVersion,
    differences,
    has_changed,
    has_moved_state,
    migrated,
    moved_stages,
    name_of,
    step_ids,
    with_store_numbers,
)


def place(stage: int, kept: str = "", *, is_fed: bool = False, transform: str = "") -> StoredStage:
    """Return the place of a stage, whose destination has a number that follows."""
    return StoredStage(stage, stage // 2, stage > 1, stage + 100, is_fed, transform, kept)


PLAN = {
    "step Create/Impulse": place(0, is_fed=True),
    "step Pair": place(1),
    "step Stats/Count": place(2, "state n", transform="ref_2"),
    "side input of Rates [iterable]": place(3, "a side input"),
}
STEPS = {"ref_0": "Create/Impulse", "ref_1": "Pair", "ref_2": "Stats/Count", "ref_3": "Rates"}
LAST = Manifest(
    epoch=5,
    fence=1,
    lineage="main",
    parent=4,
    partitions=2,
    key_groups=8,
    plan=PLAN,
    steps=STEPS,
    watermarks_us={101: 1, 102: 2, 103: 3},
    finished={100: frozenset({0}), 101: frozenset({0})},
    views={ViewId(103, b"w"): View("file", 7)},
)
SAME = PipelineVersion(plan=PLAN, steps=STEPS)


def test_what_has_not_changed() -> None:
    assert not has_changed(LAST, SAME)
    assert not has_moved_state(LAST, SAME)
    assert migrated(LAST, SAME) == LAST
    assert differences(LAST, SAME) == ()


def test_numbers_and_ids_change_if_a_step_comes_before_others() -> None:
    plan = {
        "step Create/Impulse": place(0, is_fed=True),
        "step New": place(1, "state new", transform="ref_1"),
        "step Pair": place(2),
        "step Stats/Count": place(3, "state n", transform="ref_3"),
        "side input of Rates [iterable]": place(4, "a side input"),
    }
    steps = {"ref_0": "Create/Impulse", "ref_1": "New", "ref_2": "Pair", "ref_3": "Stats/Count"}
    now = PipelineVersion(plan=plan, steps=steps)
    assert differences(LAST, now) == ()
    assert has_changed(LAST, now)
    assert has_moved_state(LAST, now)
    found = migrated(LAST, now)
    assert found.watermarks_us == {102: 1, 103: 2, 104: 3}
    assert found.finished == {100: frozenset({0}), 102: frozenset({0})}
    assert found.views == {ViewId(104, b"w"): View("file", 7)}
    assert (found.plan, found.steps, found.unfed, found.is_due) == (plan, steps, (), False)
    assert step_ids(LAST, now) == {"ref_0": "ref_0", "ref_1": "ref_2", "ref_2": "ref_3"}


def test_only_ids_of_steps_that_store_nothing_change() -> None:
    now = PipelineVersion(plan=PLAN, steps={**STEPS, "ref_4": "Print"})
    assert has_changed(LAST, now)
    assert not has_moved_state(LAST, now)


def test_a_new_source_begins() -> None:
    plan = {**PLAN, "step More/Impulse": place(9, is_fed=True)}
    now = PipelineVersion(plan=plan, steps=STEPS)
    found = migrated(dataclasses.replace(LAST, is_final=True, drains=True), now)
    assert (found.unfed, found.is_due, found.is_final) == ((109,), True, False)
    assert not found.drains
    assert migrated(dataclasses.replace(LAST, drains=True), now).drains  # it goes on
    played = dataclasses.replace(LAST, is_final=True, drains=True, events=3)
    assert migrated(played, now).drains
    # It has not begun, if the pipeline changes once more before an epoch has run.
    moved = {**PLAN, "step More/Impulse": place(11, is_fed=True)}
    assert migrated(found, PipelineVersion(plan=moved, steps=STEPS)).unfed == (111,)


def test_what_stored_records_need_must_be_declared() -> None:
    stage = "step Stats/Count"
    last = dataclasses.replace(LAST, needs={stage: ("the callback 'a'", "the callback 'b'")})
    now = PipelineVersion(
        plan=PLAN, steps=STEPS, declared={stage: frozenset({"the callback 'a'", "another"})}
    )
    (found,) = differences(last, now)
    assert found.startswith(
        "step Stats/Count has stored records that continue with the callback 'b', which it does "
        "not declare: declare it, or its new name with was=; or "
    )
    assert len(differences(last, SAME)) == 2
    all_declared = {stage: frozenset(last.needs[stage])}
    now = dataclasses.replace(now, declared=all_declared)
    assert differences(last, now) == ()
    assert migrated(last, now).needs == last.needs


def test_needs_move_with_the_name_of_their_stage() -> None:
    needs = {"step Stats/Count": ("the callback 'a'",)}
    last = dataclasses.replace(LAST, needs=needs)
    plan = {name.replace("Stats", "New"): place for name, place in PLAN.items()}
    declared = {"step New/Count": frozenset({"the callback 'a'"})}
    now = PipelineVersion(plan=plan, steps=STEPS, renamed={"Stats": "New"}, declared=declared)
    assert differences(last, now) == ()
    assert migrated(last, now).needs == {"step New/Count": ("the callback 'a'",)}
    del plan["step New/Count"]
    now = PipelineVersion(plan=plan, steps=STEPS, renamed={"Stats/Count": "", "Stats": "New"})
    assert migrated(last, now).needs == {}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (
            "state n, maps in bags, 5d41",
            "state n, 5d41",
            "step Stats/Count has maps that an SDK harness without this package has written, as "
            "bags: run its code in such a harness again (a container, a worker pool, LOOPBACK or "
            "your own command)",
        ),
        (
            "state n, 5d41",
            "state n, maps in bags, 5d41",
            "step Stats/Count has maps that were written entry by entry, which the SDK harness of "
            "this run cannot read: run its code in the Python workers, or in processes that the "
            "runner starts",
        ),
        (
            "state n, maps in bags, 5d41",
            "state n, ffff",
            "step Stats/Count stores other data than before: (state n, ffff) instead of "
            "(state n, maps in bags, 5d41)",
        ),
    ],
)
def test_maps_are_entries_or_bags(before: str, now: str, expected: str) -> None:
    last = dataclasses.replace(LAST, plan={**PLAN, "step Stats/Count": place(2, before)})
    plan = {**PLAN, "step Stats/Count": place(2, now)}
    assert differences(last, PipelineVersion(plan=plan, steps=STEPS)) == (expected,)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param(
            {"step Stats/Count": place(2, "state m")},
            "step Stats/Count stores other data than before: (state m) instead of (state n)",
            id="another state",
        ),
        pytest.param(
            {"step Stats/Count": place(2)},
            "step Stats/Count stores other data than before: (nothing) instead of (state n)",
            id="none",
        ),
        pytest.param(
            {"step Stats/Count": None},
            "step Stats/Count was removed, but has stored data (state n)",
            id="removed",
        ),
        pytest.param(
            {"step Create/Impulse": None},
            "step Create/Impulse was removed, but has begun",
            id="a source that was removed",
        ),
        pytest.param({"step Pair": None}, None, id="one that stores nothing"),
        pytest.param({"step New": place(8, "state x")}, None, id="a new one"),
    ],
)
def test_what_has_no_place_is_named(
    change: dict[str, StoredStage | None], expected: str | None
) -> None:
    plan = {name: found for name, found in {**PLAN, **change}.items() if found is not None}
    found = differences(LAST, PipelineVersion(plan=plan, steps=STEPS))
    assert found == (() if expected is None else (expected,))


def test_steps_that_have_other_names() -> None:
    """A composite, with all that is in it."""
    plan = {name.replace("Stats", "Figures"): each for name, each in PLAN.items()}
    steps = {id_: name.replace("Stats", "Figures") for id_, name in STEPS.items()}
    now = PipelineVersion(plan=plan, steps=steps, renamed={"Stats": "Figures"})
    assert differences(LAST, now) == ()
    assert not has_moved_state(LAST, now)
    assert migrated(LAST, now).watermarks_us == LAST.watermarks_us
    assert step_ids(LAST, now) == {id_: id_ for id_ in STEPS}


def test_a_step_that_was_removed_with_what_it_stores() -> None:
    plan = {name: each for name, each in PLAN.items() if name != "step Stats/Count"}
    now = PipelineVersion(plan=plan, steps=STEPS, renamed={"Stats": ""})
    assert differences(LAST, now) == ()
    assert has_moved_state(LAST, now)
    assert migrated(LAST, now).watermarks_us == {101: 1, 103: 3}


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("A", "X"),
        ("A/B", "X/B"),
        ("A/C", "Y"),
        ("A/C/D", "Y/D"),
        ("AB", "AB"),
        ("gone", None),
        ("gone/too", None),
        ("other/A", "other/A"),
    ],
)
def test_the_longest_name_counts(name: str, now: str | None) -> None:
    renamed = {"A": "X", "A/C": "Y", "gone": ""}
    assert name_of(name, renamed) == now


def test_the_same_command_renames_once() -> None:
    """Here two steps have swapped their names."""
    names = {"A": "B", "B": "A"}
    plan = {"step A": place(2, "state a"), "step B": place(3, "state b")}
    now = PipelineVersion(
        plan={"step B": plan["step A"], "step A": plan["step B"]}, steps={}, renamed=names
    )
    last = dataclasses.replace(LAST, plan=plan, steps={})
    assert differences(last, now) == ()
    found = migrated(last, now)
    assert differences(found, now) == ()
    assert not has_changed(found, now)
    assert not has_moved_state(found, now)
    without = dataclasses.replace(now, renamed={})
    assert has_changed(found, without)
    assert not has_moved_state(found, without)


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("step Old/Count~2", "step New/Count~2"),
        ("step Old [x]", "step Old [x]"),
        ("step Old/two\nlines", "step New/two\nlines"),
        ("side input of Old/Make [out] [multimap]", "side input of New/Make [out] [multimap]"),
        ("side input of Old [iterable]~3", "side input of New [iterable]~3"),
    ],
)
def test_what_belongs_to_a_step_has_its_name(name: str, now: str) -> None:
    last = dataclasses.replace(LAST, plan={name: place(1, "x")}, steps={})
    version = PipelineVersion(plan={now: place(1, "x")}, steps={}, renamed={"Old": "New"})
    assert differences(last, version) == ()
    assert len(moved_stages(last, version)) == 1


def test_two_steps_cannot_become_one() -> None:
    last = dataclasses.replace(
        LAST, plan={"step A": place(1, "x"), "step B": place(2, "x")}, steps={}
    )
    version = PipelineVersion(plan={"step B": place(1, "x")}, steps={}, renamed={"A": "B"})
    assert differences(last, version) == ("step B and step A would both become step B",)
    dropped = dataclasses.replace(version, renamed={"A": "B", "B": ""})
    assert differences(last, dropped) == ()


def readers(*roots: str, first: int = 1, group: str = "Group") -> dict[str, StoredStage]:
    """Return the places of steps with state that read one GroupByKey, in this order."""
    return {
        f"step {group}" + (f"~{number}" if number > 1 else ""): place(
            first + number, "groups, state n", transform=f"ref_{root}"
        )._replace(root=root)
        for number, root in enumerate(roots, 1)
    }


def moves(
    before: dict[str, StoredStage], after: dict[str, StoredStage], **renamed: str
) -> dict[str, str]:
    last = dataclasses.replace(LAST, plan=before)
    version = PipelineVersion(plan=after, steps=STEPS, renamed=renamed)
    return {each.before.root: each.now.root for each in moved_stages(last, version)}


def problems(before: dict[str, StoredStage], after: dict[str, StoredStage]) -> tuple[str, ...]:
    return differences(
        dataclasses.replace(LAST, plan=before), PipelineVersion(plan=after, steps=STEPS)
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("A", "B"), ("B", "A")),
        (("A", "B"), ("New", "A", "B")),
        (("A", "B", "C"), ("C", "New", "B", "A")),
        (("A",), ("New", "A")),
    ],
)
def test_steps_that_read_one_group_by_key_keep_what_they_have_stored(
    before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    """Their order in the program, after which stages are numbered, may change."""
    assert moves(readers(*before), readers(*after, first=7)) == {root: root for root in before}
    assert problems(readers(*before), readers(*after, first=7)) == ()


def test_a_step_among_several_that_was_removed_is_named() -> None:
    assert moves(readers("A", "B"), readers("B")) == {"B": "B"}
    assert problems(readers("A", "B"), readers("B")) == (
        "step Group [A] was removed, but has stored data (groups, state n)",
    )


def test_a_step_that_reads_a_group_by_key_alone_may_have_another_name() -> None:
    assert moves(readers("A"), readers("Other")) == {"A": "Other"}


def test_steps_that_read_one_group_by_key_are_renamed() -> None:
    after = readers("C", "A", group="Pairs")
    assert moves(readers("A", "B"), after, Group="Pairs", B="C") == {"A": "A", "B": "C"}


def test_a_step_among_several_is_dropped_with_what_it_stores() -> None:
    last = dataclasses.replace(LAST, plan=readers("A", "B"))
    version = PipelineVersion(plan=readers("A"), steps=STEPS, renamed={"B": ""})
    assert differences(last, version) == ()
    assert [each.before.root for each in moved_stages(last, version)] == ["A"]


def test_copies_of_one_step_are_told_apart_by_their_number() -> None:
    """Those of a Flatten have the same first step."""
    copies = readers("A", "A")
    last = dataclasses.replace(LAST, plan=copies)
    found = moved_stages(last, PipelineVersion(plan=copies, steps=STEPS))
    assert [each.before for each in found] == [each.now for each in found]


def test_stages_keep_their_store_numbers_and_new_ones_get_fresh_ones() -> None:
    begun = with_store_numbers(dataclasses.replace(LAST, namespace="n"))
    assert begun.stores == {"step Stats/Count": 0, "side input of Rates [iterable]": 1}
    assert with_store_numbers(begun) == begun
    plan = {
        "step Create/Impulse": place(0, is_fed=True),
        "step New": place(1, "state new", transform="ref_1"),
        "step Stats/Sum": place(2, "state n", transform="ref_3"),
    }
    renamed = {"Stats/Count": "Stats/Sum", "Rates": ""}
    now = migrated(begun, PipelineVersion(plan=plan, steps=STEPS, renamed=renamed))
    assert now.stores == {"step Stats/Sum": 0, "step New": 2}  # 1 is never used again
    assert now.next_store == 3


def test_without_a_state_store_there_are_no_store_numbers() -> None:
    assert with_store_numbers(LAST) == LAST


LEFT = EpochWrite("Sink/Write", "beam-spark-c-1f", 5, ("main-5.table",), 3, "delta")


def test_rows_that_may_not_be_written_need_their_step() -> None:
    last = dataclasses.replace(LAST, unwritten=(LEFT,))
    assert differences(last, dataclasses.replace(SAME, tables=frozenset({"Sink/Write"}))) == ()
    assert differences(last, SAME) == (
        "Sink/Write writes no table, but its 3 rows of epoch 5 may not be written yet",
    )
    removed = dataclasses.replace(SAME, renamed={"Sink": ""})
    assert differences(last, removed) == ()
    assert migrated(last, removed).unwritten == ()


def test_rows_of_a_step_with_another_name_are_known_to_the_table_by_the_earlier_one() -> None:
    last = dataclasses.replace(LAST, unwritten=(LEFT,))
    now = dataclasses.replace(SAME, renamed={"Sink": "Out"}, tables=frozenset({"Out/Write"}))
    assert differences(last, now) == ()
    assert migrated(last, now).unwritten == (LEFT._replace(step="Out/Write"),)
