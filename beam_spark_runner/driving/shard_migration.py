"""Continues a streaming pipeline that has changed, or has another number of partitions."""

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

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
from beam_spark_runner.engine.task.shard_copying import Resharding, StageToReshard
from beam_spark_runner.plan.compatibility import SIDE_INPUT
from beam_spark_runner.portable.monitoring import relabelled
from beam_spark_runner.recovery.heads import DeltaId, Head
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
    rules: StreamRules, settings: RunSettings, cluster: Cluster, last: Manifest
) -> Manifest | None:
    """Adapt the last manifest to this run; redistribute state whose place has changed.

    Args:
        rules: the rules of the plan of this run.
        settings: the settings of this run.
        cluster: makes the new shards.
        last: the newest manifest.

    Returns:
        A manifest of the next epoch, in which nothing else happens. None: nothing has changed.

    Raises:
        CheckpointStorageError: a disk or the checkpoint's storage does not work.
        SparkJobError: the redistribution failed. The checkpoint is unchanged.
    """
    version, finishing = rules.version, rules.finishing
    before, after = last.partitions, rules.partitions
    if (before == after or last.is_final) and not has_changed(last, version):
        return None
    heads = last.heads
    if before != after or has_moved_state(last, version):
        resharding = resharding_after(last, version, settings.shards, after, rules.splittable)
        heads = heads_of(resharding, _made(settings, cluster, resharding))
        _LOGGER.info("state was redistributed: %d partitions before, %d now", before, after)
    now = migration_after(last, version, finishing, heads, after)
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
    heads: Mapping[tuple[int, int], Head],
    partitions: int,
) -> Manifest:
    """Return the manifest that commits a migration, as the next epoch.

    Args:
        last: the newest manifest.
        version: the version of this run.
        finishing: the rules for its plan.
        heads: the heads of the shards from now on.
        partitions: the number of partitions from now on.
    """
    now, metrics = migrated(last, version), last.metrics
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
        heads=heads,
        keyed=repartitioned_keys(last, now, partitions),
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
    return finishing.adapted(before, known, last.partitions, last.key_groups)


def resharding_after(
    last: Manifest,
    version: PipelineVersion,
    places: ShardLocations,
    partitions: int,
    splittable: Collection[int],
) -> Resharding:
    """Return which shards are to be made, and from which old ones.

    Args:
        last: the newest manifest.
        version: the version of this run.
        places: the folders of the shards.
        partitions: the number of partitions from now on.
        splittable: the numbers of the stages that store restrictions.
    """
    stages: defaultdict[int, list[StageToReshard]] = defaultdict(list)
    not_empty = {level for level, _ in last.heads}
    for each in moved_stages(last, version):
        if each.before.kept and each.before.level in not_empty:
            stages[each.now.level].append(StageToReshard(each, each.now.stage in splittable))
    return Resharding(
        places=places,
        epoch=last.epoch + 1,
        before=last.partitions,
        after=partitions,
        heads={place: chain.ShardVersion(*head.delta) for place, head in last.heads.items()},
        stages={level: tuple(storing) for level, storing in stages.items()},
    )


def heads_of(
    resharding: Resharding, made: Iterable[tuple[int, int, int]]
) -> dict[tuple[int, int], Head]:
    """Return the heads of new shards.

    Args:
        resharding: the resharding that has made them.
        made: level, partition and attempt of each shard that is not empty.
    """
    return {
        (level, partition): Head(DeltaId(resharding.epoch, attempt))
        for level, partition, attempt in made
    }


def _made(
    settings: RunSettings, cluster: Cluster, resharding: Resharding
) -> list[tuple[int, int, int]]:
    """Make the new shards, and return those that are not empty, with their attempts."""
    if not (resharding.new_shards() and resharding.heads):
        return []
    try:
        with cluster.scope(_TITLE):
            made = cluster.reshard(resharding)
    except RunnerError:
        raise
    except Exception as error:
        settings.check_cancelled()
        raise SparkJobError(_TITLE, cluster.reason_of(error)) from error
    shards = []
    for each in made:
        if each.problem is not None:
            raise CheckpointStorageError(each.place or "", each.problem)
        if each.attempt is not None:
            shards.append((each.level, each.partition, each.attempt))
    return shards
