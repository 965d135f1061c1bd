"""Opens the files of a task: its shard, at the last committed epoch, and its stored rows."""

import contextlib
import functools
from collections.abc import Iterator, Mapping

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.ids import StageId
from beam_spark_runner.core.key_groups import groups_of
from beam_spark_runner.engine.epoch_files import (
    folder_of_copies,
    folder_of_epochs,
    new_file,
    scratch_folder,
)
from beam_spark_runner.engine.program import LevelProgram
from beam_spark_runner.engine.task.epoch_stages import EpochStages
from beam_spark_runner.engine.task.stored_rows import RowFile
from beam_spark_runner.recovery.heads import DeltaId, EarlierHead, Head, KeyedHead, Part
from beam_spark_runner.recovery.sweep import keyed_delta_name, rows_name
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.local_copy import Origin
from beam_spark_runner.state.remote.key_stores import key_store
from beam_spark_runner.state.remote.keyed_delta import KeyedDeltas
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
        is_shared=program.limits.harnesses is not None,
    )


@contextlib.contextmanager
def open_keyed_shards(
    program: LevelProgram, epoch: reports_pb2.Epoch, partition: int
) -> Iterator[Mapping[StageId, KeyedShard]]:
    """Open the keys of a level and partition that are in the state store, by their stages."""
    places, address = program.shards, program.shards.state_store
    found: dict[StageId, KeyedShard] = {}
    if address is None:
        yield found
        return
    with contextlib.ExitStack() as opened:
        for stage in program.stages:
            if not stage.in_epochs.may_be_in_state_store:
                continue
            if int(stage.stage) not in epoch.stores:  # reading the map would make an entry
                raise InvariantError(f"{stage.name} has no store number")
            number = epoch.stores[stage.stage]
            deltas = KeyedDeltas(
                folder_of_epochs(places),
                functools.partial(_keyed_name, places.lineage, number),
                partition,
                _keyed_head(epoch, number, partition),
            )
            shard = KeyedShard(
                key_store(address, epoch.namespace, number),
                groups_of(partition, places.key_groups, program.partitions),
                places.key_groups,
                deltas,
                scratch_folder(places),
                is_shared=program.limits.harnesses is not None,
            )
            found[stage.stage] = opened.enter_context(shard)
        yield found


def _keyed_name(lineage: str, number: int, partition: int, version: ShardVersion) -> str:
    return keyed_delta_name(lineage, number, partition, *version)


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
    was_rebuilt = was_rebuilt or any(each.was_rebuilt for each in keyed.values())
    stored_bytes = shard.used_bytes()
    version = ShardVersion(stages.epoch.number, attempt)
    keyed_reports = [
        _keyed_report(stages.epoch.stores[stage], each.seal(version))
        for stage, each in keyed.items()
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
        stored_bytes=stored_bytes,
        keyed=keyed_reports,
    )


def _keyed_report(number: int, head: KeyedHead) -> reports_pb2.KeyedReport:
    report = reports_pb2.KeyedReport(store=number, needs_parts=bool(head.parts))
    if head.own is not None:
        (report.epoch, report.attempt), older = head.own
        report.older.extend(reports_pb2.DeltaId(epoch=epoch, attempt=each) for epoch, each in older)
    return report


def _keyed_head(epoch: reports_pb2.Epoch, number: int, partition: int) -> KeyedHead:
    for each in epoch.keyed:
        if (each.store, each.partition) == (number, partition):
            own = Head(DeltaId(each.epoch, each.attempt)) if each.epoch else None
            return KeyedHead(own, tuple(map(_part_of, each.parts)))
    return KeyedHead()


def _part_of(proto: reports_pb2.KeyedPart) -> Part:
    chains = (
        EarlierHead(each.partition, Head(DeltaId(each.epoch, each.attempt)))
        for each in proto.chains
    )
    return Part(proto.first, proto.end, tuple(chains))


def _head_of(
    program: LevelProgram, epoch: reports_pb2.Epoch, partition: int
) -> reports_pb2.ShardHead | None:
    place = program.level, partition
    return next((head for head in epoch.heads if (head.level, head.partition) == place), None)
