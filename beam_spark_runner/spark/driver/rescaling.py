"""Continues a streaming pipeline with another number of partitions."""

import dataclasses
import functools
import logging

from beam_spark_runner.core.errors import RunnerError, SparkJobError
from beam_spark_runner.plan.levels import levels
from beam_spark_runner.plan.model import Plan
from beam_spark_runner.recovery.manifest import DeltaId, Head, Manifest
from beam_spark_runner.scheduling.finish import rescaled_tasks
from beam_spark_runner.spark.driver.run_context import RunSettings
from beam_spark_runner.spark.driver.spark_errors import reason_of
from beam_spark_runner.spark.task.resharding import SCHEMA, Resharding, StoringStage, make_shards
from beam_spark_runner.state.chain import Version

_LOGGER = logging.getLogger(__name__)
_TITLE = "Redistribute state"


def rescaled(plan: Plan, settings: RunSettings, last: Manifest) -> Manifest:
    """Store all state once more, by other partitions.

    Args:
        plan: of the pipeline.
        settings: with the number of partitions from now on.
        last: the newest manifest, with the number of partitions until now.

    Returns:
        A manifest of the next epoch, in which nothing else happens.

    Raises:
        SparkJobError: it failed. The checkpoint is as it was.
    """
    places, after = settings.limits.shards, settings.least_partitions
    assert places is not None
    exchanges = {number: level for number, level in enumerate(levels(plan)) if level.has_exchange}
    heads = {place: head for place, head in last.heads.items() if place[0] not in exchanges}
    resharding = Resharding(
        places=places,
        epoch=last.epoch + 1,
        before=last.partitions,
        after=after,
        heads={
            place: Version(*head.delta) for place, head in last.heads.items() if place not in heads
        },
        stages={
            number: tuple(
                StoringStage(int(id_), stage.name, stage.is_splittable, stage.is_keyed)
                for id_ in level.stages
                for stage in (plan.stages[id_],)
            )
            for number, level in exchanges.items()
        },
    )
    for level, partition, attempt in _made(settings, resharding):
        heads[level, partition] = Head(DeltaId(resharding.epoch, attempt))
    _LOGGER.info("state is redistributed from %d to %d partitions", last.partitions, after)
    return dataclasses.replace(
        last,
        epoch=resharding.epoch,
        parent=last.epoch,
        partitions=after,
        heads=heads,
        finished=rescaled_tasks(plan, last.finished, last.partitions, after, last.key_groups),
    )


def _made(settings: RunSettings, resharding: Resharding) -> list[tuple[int, int, int]]:
    """Make the new shards, and return those that are not empty, with their attempts."""
    count = len(resharding.new_shards())
    if not resharding.heads:
        return []
    try:
        with settings.job_scope(_TITLE):
            numbers = settings.spark.range(0, count, 1, count)
            frame = numbers.mapInArrow(functools.partial(make_shards, resharding), SCHEMA)
            return [tuple(row) for row in frame.collect()]
    except RunnerError:
        raise
    except Exception as error:
        settings.check_cancelled()
        raise SparkJobError(_TITLE, reason_of(error)) from error
