"""Opens the files of a task: its shard, at the last committed epoch, and its stored rows."""

import contextlib
from collections.abc import Iterator, Mapping

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.ids import StageId
from beam_spark_runner.engine.epoch_files import (
    folder_of_copies,
    folder_of_epochs,
    new_file,
)
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.task.epoch_stages import EpochStages
from beam_spark_runner.engine.task.keyed_shards import keyed_report
from beam_spark_runner.engine.task.stored_rows import RowFile
from beam_spark_runner.recovery.sweep import rows_name
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.local_copy import Origin
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.shards import Shard, open_shard


def open_shard_of(
    program: LevelProgram, epoch: reports_pb2.Epoch, partition: int
) -> contextlib.AbstractContextManager[Shard | None]:
    """Open the shard of a level and partition, at its head in the epoch's mark.

    The shard is None if no stage of the level uses one.
    """
    places = program.shards
    if not any(stage.in_epochs.stores for stage in program.stages):
        return contextlib.nullcontext()
    head = _head_of(program, epoch, partition)
    return open_shard(
        folder_of_copies(places),
        folder_of_epochs(places),
        lineage=places.lineage,
        level=program.level,
        partition=partition,
        head=None if head is None else ShardVersion(head.epoch, head.attempt),
    )


@contextlib.contextmanager
def row_file(
    program: LevelProgram, epoch: reports_pb2.Epoch, partition: int, attempt: int
) -> Iterator[RowFile]:
    """Open the file in which an attempt stores its rows for the next Spark job of the epoch."""
    places = program.shards
    name = rows_name(places.lineage, epoch.number, epoch.fence, program.level, partition, attempt)
    with new_file(places, name) as (path, store), RowFile(path, store) as file:
        yield file


def seal(
    shard: Shard, keyed: Mapping[StageId, KeyedShard], attempt: int, stages: EpochStages
) -> reports_pb2.ShardReport:
    """Seal the changes of an attempt, and return the report of its shard.

    Args:
        shard: the shard of the task.
        keyed: its keys in the state store.
        attempt: the number of the attempt.
        stages: the stages of the level; their ``finish`` has run.
    """
    next_event_us, next_clock_us = stages.next_due()
    was_rebuilt = shard.origin is Origin.REBUILT and bool(shard.chain)  # else it was new
    was_rebuilt = was_rebuilt or any(keyed_shard.was_rebuilt for keyed_shard in keyed.values())
    used = shard.used()
    version = ShardVersion(stages.epoch.number, attempt)
    keyed_reports = [
        keyed_report(stages.epoch.stores[stage], keyed_shard.seal(version))
        for stage, keyed_shard in keyed.items()
    ]
    head = shard.seal(version)
    return reports_pb2.ShardReport(
        epoch=0 if head is None else head.epoch,
        attempt=0 if head is None else head.attempt,
        older=[
            reports_pb2.DeltaId(epoch=epoch, attempt=attempt)
            for (epoch, attempt), _, _ in shard.chain[:-1]
        ],
        next_event_us=next_event_us,
        next_clock_us=next_clock_us,
        was_cut_off=stages.was_cut_off,
        awaited_us=stages.awaited_us,
        was_interrupted=stages.was_interrupted,
        awaits_commit=stages.awaits_commit,
        was_rebuilt=was_rebuilt,
        stored_bytes=used.size_bytes,
        stored_records=used.records,
        keyed=keyed_reports,
        needs=[
            reports_pb2.StageNeeds(stage=stage, declared=sorted(needs))
            for stage, needs in stages.needs.items()
            if needs
        ],
        group_bytes=max(
            (keyed_shard.largest_group_bytes for keyed_shard in keyed.values()), default=0
        ),
    )


def _head_of(
    program: LevelProgram, epoch: reports_pb2.Epoch, partition: int
) -> reports_pb2.ShardHead | None:
    place = program.level, partition
    return next((head for head in epoch.heads if (head.level, head.partition) == place), None)
