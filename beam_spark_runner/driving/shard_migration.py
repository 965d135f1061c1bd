"""Continues a streaming pipeline that has changed, or has another number of partitions."""

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from beam_spark_runner.core.errors import (
    CheckpointStorageError,
    RunnerError,
    SparkJobError,
)
from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.driving.cluster import Cluster
from beam_spark_runner.driving.run_context import RunSettings
from beam_spark_runner.driving.stream_rules import StreamRules
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.engine.task.shard_copying import NewShard, Resharding, StageToReshard
from beam_spark_runner.plan.compatibility import SIDE_INPUT
from beam_spark_runner.portable.monitoring import relabelled
from beam_spark_runner.recovery.heads import DeltaId, Head, KeyedHead, KeyedHeads
from beam_spark_runner.recovery.manifest import Manifest
from beam_spark_runner.recovery.migration import (
    PipelineVersion,
    has_changed,
    has_moved_state,
    migrated,
    moved_stages,
    repartitioned_keys,
    step_ids,
)
from beam_spark_runner.scheduling.finish import Finished, Finishing
from beam_spark_runner.state import chain

_LOGGER = logging.getLogger(__name__)
_TITLE = "Redistribute state"


def adapted(
    rules: StreamRules, settings: RunSettings, cluster: Cluster, last: Manifest, namespace: str
) -> Manifest | None:
    """Adapt the last manifest to this run; redistribute state whose place has changed.

    Args:
        rules: the rules of the plan of this run.
        settings: the settings of this run.
        cluster: makes the new shards.
        last: the newest manifest.
        namespace: the namespace of keys in the state store; empty: they are in shards.

    Returns:
        A manifest of the next epoch, in which nothing else happens. None: nothing has changed.

    Raises:
        CheckpointStorageError: a disk, the checkpoint's storage or the state store does not work.
        SparkJobError: the redistribution failed. The checkpoint is unchanged.
    """
    version, finishing = rules.version, rules.finishing
    before, after = last.partitions, rules.partitions
    keys_move = bool(last.namespace) != bool(namespace)
    if ((before == after and not keys_move) or last.is_final) and not has_changed(last, version):
        return None
    now = migration_after(last, version, finishing, after, namespace)
    if before != after or has_moved_state(last, version) or keys_move:
        resharding = resharding_after(last, now, version, settings.shards, rules)
        heads, keyed = heads_of(resharding, _made(settings, cluster, resharding))
        now = dataclasses.replace(now, heads=heads, keyed=keyed if keys_move else now.keyed)
    if before != after:
        _LOGGER.info("state was redistributed: %d partitions before, %d now", before, after)
    if keys_move and namespace:
        _LOGGER.info("the keys are in the state store now")
    elif keys_move:
        _LOGGER.warning(
            "the keys are on the disks of the executors now, since --state_store is not set. What "
            "they have left in the state store can be removed: beam-spark-state-store drop %s",
            last.namespace,
        )
    for name in empty_side_inputs(last, version, finishing, now.finished):
        _LOGGER.warning(
            "the %s is new, and is empty: the steps that produce it have finished in an earlier "
            "run. Under new names, they run again",
            name,
        )
    return now


def empty_side_inputs(
    last: Manifest, version: PipelineVersion, finishing: Finishing, finished: Finished
) -> list[str]:
    """Return the names of new side inputs that stay empty, since their producers have finished.

    Args:
        last: the newest manifest.
        version: the version of this run.
        finishing: the rules for its plan.
        finished: what has finished, see ``finished_now``.
    """
    empty = _new_and_finished(last, version, finishing, finished)
    return [
        name
        for name, place in version.plan.items()
        if name.startswith(SIDE_INPUT) and place.dest in empty
    ]


def migration_after(
    last: Manifest,
    version: PipelineVersion,
    finishing: Finishing,
    partitions: int,
    namespace: str = "",
) -> Manifest:
    """Return the manifest that commits a migration, as the next epoch, before shards are made.

    Args:
        last: the newest manifest.
        version: the version of this run.
        finishing: the rules for its plan.
        partitions: the number of partitions from now on.
        namespace: the namespace of keys in the state store; empty: they are in shards.
    """
    housed = last
    if bool(last.namespace) != bool(namespace):
        housed = dataclasses.replace(last, namespace=namespace, stores={}, keyed={})
    now, metrics = migrated(housed, version), last.metrics
    finished = finished_now(last, version, finishing)
    # They never run, so that they report no watermark.
    ended = dict.fromkeys(_new_and_finished(last, version, finishing, finished), MAX_US)
    if dict(last.steps) != dict(version.steps):
        metrics = relabelled(metrics, step_ids(last, version))
    return dataclasses.replace(
        now,
        epoch=last.epoch + 1,
        parent=last.epoch,
        partitions=partitions,
        keyed=repartitioned_keys(housed, now, partitions),
        watermarks_us={**ended, **now.watermarks_us},
        finished=finished,
        metrics=metrics,
    )


def _new_and_finished(
    last: Manifest, version: PipelineVersion, finishing: Finishing, finished: Finished
) -> frozenset[int]:
    """Return the destinations of new stages that have finished, since all upstream of them has."""
    return finishing.completed(finished) - {each.now.dest for each in moved_stages(last, version)}


def finished_now(last: Manifest, version: PipelineVersion, finishing: Finishing) -> Finished:
    """Return which tasks of this run have finished in an earlier one, see ``scheduling.finish``."""
    known = {each.now.dest: each.before.is_exchanged for each in moved_stages(last, version)}
    before = migrated(last, version).finished
    return finishing.finished_in_this_plan(before, known, last.partitions, last.key_groups)


def resharding_after(
    last: Manifest,
    now: Manifest,
    version: PipelineVersion,
    places: ShardLocations,
    rules: StreamRules,
) -> Resharding:
    """Return which shards are to be made, and from which old ones.

    Args:
        last: the newest manifest.
        now: the manifest that commits them, see ``migration_after``.
        version: the version of this run.
        places: the folders of the shards.
        rules: the rules of the plan of this run.
    """
    leave, enter = _store_numbers(last), _store_numbers(now)
    if bool(last.namespace) == bool(now.namespace):
        leave = enter = {}
    not_empty = {level for level, _ in last.heads}
    stages: defaultdict[int, list[StageToReshard]] = defaultdict(list)
    for each in moved_stages(last, version):
        before, after = each
        is_keyed = after.stage in rules.keyed
        leaves = leave.get(before.stage) if is_keyed else None
        enters = enter.get(after.stage) if is_keyed else None
        if before.kept and (before.level in not_empty or leaves is not None):
            is_splittable = after.stage in rules.splittable
            stages[after.level].append(StageToReshard(each, is_splittable, leaves, enters))
    return Resharding(
        places=places,
        epoch=now.epoch,
        before=last.partitions,
        after=rules.partitions,
        heads={place: chain.ShardVersion(*head.delta) for place, head in last.heads.items()},
        keyed=last.keyed if leave else {},
        namespace=now.namespace,
        stages={level: tuple(storing) for level, storing in stages.items()},
    )


def _store_numbers(manifest: Manifest) -> Mapping[int, int]:
    """Return the store numbers of stages, by the stages' numbers in the plan."""
    return {manifest.plan[name].stage: number for name, number in manifest.stores.items()}


def heads_of(
    resharding: Resharding, made: Iterable[NewShard]
) -> tuple[Mapping[tuple[int, int], Head], KeyedHeads]:
    """Return the heads of new shards, and those of keys that have entered the state store.

    Args:
        resharding: the resharding that has made them.
        made: what it has made.
    """
    shards: dict[tuple[int, int], Head] = {}
    keyed: dict[tuple[int, int], KeyedHead] = {}
    for each in made:
        if each.attempt is None:
            continue
        head = Head(DeltaId(resharding.epoch, each.attempt))
        if each.store is None:
            shards[each.level, each.partition] = head
        else:
            keyed[each.store, each.partition] = KeyedHead(head)
    return shards, keyed


def _made(settings: RunSettings, cluster: Cluster, resharding: Resharding) -> Sequence[NewShard]:
    """Make the new shards; return what is not empty."""
    if not resharding.new_shards():
        return ()
    try:
        with cluster.scope(_TITLE):
            new_shards = cluster.reshard(resharding)
    except RunnerError:
        raise
    except Exception as error:
        settings.check_cancelled()
        raise SparkJobError(_TITLE, cluster.reason_of(error)) from error
    for each in new_shards:
        if each.problem is not None:
            raise CheckpointStorageError(each.place or "", each.problem)
    return new_shards
