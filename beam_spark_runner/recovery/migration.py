"""Converts the manifest of an earlier version of a pipeline to this version."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.plan.compatibility import MAPS_IN_BAGS, SIDE_INPUT, StoredStage
from beam_spark_runner.recovery.epoch_writes import EpochWrite
from beam_spark_runner.recovery.heads import KeyedHead, KeyedHeads, repartitioned
from beam_spark_runner.recovery.manifest import Manifest

# Of a side input, output and access pattern follow. See ``graph.facts.fresh`` for the number.
_STAGE = re.compile(
    rf"(?P<kind>step |(?P<side>{SIDE_INPUT}))(?P<step>.*?)"
    rf"(?P<rest>(?(side)(?: \[[^][]*\]){{1,2}})(?:~\d+)?)",
    re.DOTALL,
)
_NUMBER = re.compile(r"~\d+$")
_Value = TypeVar("_Value")
_UNDECLARED = (
    "has stored records that continue with {}, which it does not declare: declare it, or its new "
    "name with was=; or run the earlier version once without --unaligned_state_requests, until "
    "it has committed an epoch"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineVersion:
    """A version of a pipeline, as it runs.

    Attributes:
        plan: See ``plan.compatibility.stage_places``.
        steps: See ``plan.compatibility.step_names``.
        renamed: By the name of a step in an earlier version: its name now; empty: the step was
            removed, with its stored data. The name of a composite stands for all steps in it.
        tables: The names of the steps that write tables.
        declared: The descriptions of the callbacks and variables of declarative steps, by the names
            of their stages in ``plan``.
    """

    plan: Mapping[str, StoredStage]
    steps: Mapping[str, str]
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    declared: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    tables: frozenset[str] = frozenset()


class MovedStage(NamedTuple):
    """A stage in an earlier version and in this one."""

    before: StoredStage
    now: StoredStage


def moved_stages(last: Manifest, now: PipelineVersion) -> list[MovedStage]:
    """Return the stages of an earlier version that this version has, too."""
    found = []
    for name, current_name in _current_names(last, now).items():
        current = now.plan.get(current_name or "")
        if current is not None:
            found.append(MovedStage(last.plan[name], current))
    return found


def differences(last: Manifest, now: PipelineVersion) -> tuple[str, ...]:
    """Describe, for people, stored data that this version lacks or stores in another form."""
    found, current_names, alike = [], _current_names(last, now), _by_bare_name(last.plan)
    taken: dict[str, str] = {}
    for name, place in sorted(last.plan.items()):
        current_name = current_names[name]
        if not (place.kept or place.is_fed) or current_name is None:
            continue
        shown = name
        if place.root and name.removeprefix("step ") != place.root and len(alike[_bare(name)]) > 1:
            shown = f"{_bare(name)} [{place.root}]"
        if other := taken.get(current_name):
            found.append(f"{shown} and {other} would both become {current_name}")
        taken[current_name] = shown
        current = now.plan.get(current_name)
        if current is None:
            why = f"has stored data ({place.kept})" if place.kept else "has begun"
            found.append(f"{shown} was removed, but {why}")
        elif current.kept != place.kept:
            found.append(f"{shown} {_difference(place.kept, current.kept)}")
        else:
            needs = last.needs.get(name, ())
            missing = [each for each in needs if each not in now.declared.get(current_name, ())]
            found += (f"{shown} {_UNDECLARED.format(each)}" for each in missing)
    for write in renamed_writes(last, now):
        if write.step not in now.tables:
            found.append(
                f"{write.step} writes no table, but its {write.rows} rows of epoch {write.epoch} "
                "may not be written yet"
            )
    return tuple(found)


def renamed_writes(last: Manifest, now: PipelineVersion) -> tuple[EpochWrite, ...]:
    """Return the writes that may be left, with the present names of their steps.

    Those of steps that were removed by name are left out, as all else that is stored for them.
    """
    renamed = _yet_to_rename(last, now)
    names = ((each, name_of(each.step, renamed)) for each in last.unwritten)
    return tuple(each._replace(step=name) for each, name in names if name is not None)


def _difference(before: str, now: str) -> str:
    if before == now.replace(MAPS_IN_BAGS, ", "):
        return (
            "has maps that were written entry by entry, which the SDK harness of this run cannot "
            "read: run its code in the Python workers, or in processes that the runner starts"
        )
    if now == before.replace(MAPS_IN_BAGS, ", "):
        return (
            "has maps that an SDK harness without this package has written, as bags: run its code "
            "in such a harness again (a container, a worker pool, LOOPBACK or your own command)"
        )
    return f"stores other data than before: ({now or 'nothing'}) instead of ({before})"


def migrated(last: Manifest, now: PipelineVersion) -> Manifest:
    """Return the manifest with the numbers and ids of this version.

    Shards are not changed. New impulses are due.

    Args:
        last: The newest manifest.
        now: This version, which has no ``differences``.
    """
    stages = moved_stages(last, now)
    dests = {each.before.dest: each.now.dest for each in stages}
    known = {each.now.dest for each in stages}
    unfed = {place.dest for place in now.plan.values() if place.is_fed and place.dest not in known}
    unfed |= {dests[dest] for dest in last.unfed if dest in dests}
    mine = dataclasses.replace(
        last,
        watermarks_us=_mapped(last.watermarks_us, dests),
        finished=_mapped(last.finished, dests),
        views={
            id_._replace(dest=dests[id_.dest]): view
            for id_, view in last.views.items()
            if id_.dest in dests
        },
        plan=now.plan,
        stores={
            current: last.stores[name]
            for name, current in _current_names(last, now).items()
            if current is not None and current in now.plan and name in last.stores
        },
        needs={
            current: last.needs[name]
            for name, current in _current_names(last, now).items()
            if current is not None and current in now.plan and name in last.needs
        },
        steps=now.steps,
        renamed=now.renamed,
        unwritten=renamed_writes(last, now),
        unfed=tuple(sorted(unfed)),
        is_due=last.is_due or bool(unfed),
        is_final=last.is_final and not unfed,
        # The drain that ended the earlier version does not concern what begins now, except where it
        # has ended a TestStream, which would continue.
        drains=last.drains and not (last.is_final and unfed and not last.events),
    )
    return with_store_numbers(mine)


def with_store_numbers(manifest: Manifest) -> Manifest:
    """Return the manifest with a store number for each stage that stores something.

    Numbers are never used again, since the state store may still have what a removed step had.
    """
    if not manifest.namespace:
        return manifest
    new = [name for name, place in manifest.plan.items() if place.kept]
    new = [name for name in new if name not in manifest.stores]
    first = manifest.next_store
    numbers = {name: first + number for number, name in enumerate(new)}
    return dataclasses.replace(
        manifest, stores={**manifest.stores, **numbers}, next_store=first + len(new)
    )


def repartitioned_keys(last: Manifest, now: Manifest, partitions: int) -> KeyedHeads:
    """Return the heads of keys in the state store for another version or number of partitions.

    Args:
        last: The newest manifest.
        now: The same, with the plan and the store numbers of this version.
        partitions: The number of partitions from now on.
    """
    heads: dict[tuple[int, int], KeyedHead] = {}
    before = {number: last.plan[name] for name, number in last.stores.items()}
    for name, number in now.stores.items():
        if number in before:
            counts = (
                last.partitions if before[number].is_exchanged else 1,
                partitions if now.plan[name].is_exchanged else 1,
            )
            heads |= repartitioned(last.keyed, number, *counts, last.key_groups)
    return heads


def step_ids(last: Manifest, now: PipelineVersion) -> Mapping[str, str]:
    """Return the present ids of transforms, by their ids in the earlier version."""
    ids = {name: id_ for id_, name in now.steps.items()}
    renamed = _yet_to_rename(last, now)
    names = {id_: name_of(name, renamed) for id_, name in last.steps.items()}
    return {id_: ids[name] for id_, name in names.items() if name in ids}


def has_changed(last: Manifest, now: PipelineVersion) -> bool:
    """Whether numbers, ids or names differ."""
    before, after = (
        (dict(each.plan), dict(each.steps), dict(each.renamed)) for each in (last, now)
    )
    return before != after


def has_moved_state(last: Manifest, now: PipelineVersion) -> bool:
    """Whether stored data is not where this version would look for it."""
    moved = {each.before.stage: each for each in moved_stages(last, now)}
    for place in last.plan.values():
        each = moved.get(place.stage)
        if place.kept and (each is None or _address(each.before) != _address(each.now)):
            return True
    return False


def _address(place: StoredStage) -> tuple[object, ...]:
    return place.stage, place.level, place.is_exchanged, place.transform


def name_of(name: str, renamed: Mapping[str, str]) -> str | None:
    """Return the present name of a step of an earlier version; None: it was removed.

    Args:
        name: The name in the earlier version.
        renamed: See ``PipelineVersion``.
    """
    prefix, rest = name, ""
    while True:
        if prefix in renamed:
            now = renamed[prefix]
            return now + rest if now else None
        prefix, slash, last = prefix.rpartition("/")
        if not slash:
            return name
        rest = slash + last + rest


def _yet_to_rename(last: Manifest, now: PipelineVersion) -> Mapping[str, str]:
    """Return ``now.renamed``, or no names if an earlier run has applied the same ones already."""
    return {} if dict(last.renamed) == dict(now.renamed) else now.renamed


def _current_names(last: Manifest, now: PipelineVersion) -> Mapping[str, str | None]:
    """Return the present names of stages of an earlier version; None: they were removed.

    Stages that read the same GroupByKey have the same name with different numbers. These are in the
    order of the program, which may have changed, so such stages are matched by their first steps.
    """
    renamed = _yet_to_rename(last, now)
    before, after = _by_bare_name(last.plan), _by_bare_name(now.plan)
    found: dict[str, str | None] = {}
    taken: set[str] = set()
    for name, place in last.plan.items():
        current = _stage_name(name, renamed)
        found[name] = current
        if current is None:
            continue
        several = after[_bare(current)]
        if len(several) == 1 and len(before[_bare(name)]) == 1:
            continue
        root = name_of(place.root, renamed)
        alike = [each for each in several if now.plan[each].root == root and each not in taken]
        found[name] = None if root is None else next(iter(alike), f"{current} [{root}]")
        taken.update(alike[:1])
    return found


def _by_bare_name(names: Iterable[str]) -> Mapping[str, list[str]]:
    """Return the names of stages, grouped by name without number."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        found[_bare(name)].append(name)
    return found


def _bare(name: str) -> str:
    return _NUMBER.sub("", name)


def _stage_name(name: str, renamed: Mapping[str, str]) -> str | None:
    """Return the name of a stage in this version; None: it was removed."""
    matched = _STAGE.fullmatch(name)
    if matched is None:
        raise InvariantError(f"{name} is no name of a stage")
    step = name_of(matched["step"], renamed)
    return None if step is None else matched["kind"] + step + matched["rest"]


def _mapped(values: Mapping[int, _Value], dests: Mapping[int, int]) -> dict[int, _Value]:
    return {dests[dest]: value for dest, value in values.items() if dest in dests}
