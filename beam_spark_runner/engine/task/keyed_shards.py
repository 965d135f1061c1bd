"""Opens the keys of a task that are in the state store, at the last committed epoch."""

import contextlib
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

from beam_spark_runner._generated import reports_pb2
from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.core.ids import StageId
from beam_spark_runner.core.key_groups import groups_of
from beam_spark_runner.engine.epoch_files import folder_of_epochs, scratch_folder
from beam_spark_runner.engine.program import LevelProgram, ShardLocations
from beam_spark_runner.recovery.heads import DeltaId, EarlierHead, Head, KeyedHead, Part
from beam_spark_runner.recovery.sweep import keyed_delta_name
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.delta_files import DeltaFiles
from beam_spark_runner.state.remote.kept_deltas import KeptDeltas
from beam_spark_runner.state.remote.key_stores import key_store
from beam_spark_runner.state.remote.keyed_delta import KeyedDeltas
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.remote.loaded_packs import PackCache, PackCacheAt, PackPlace
from beam_spark_runner.storage.urls import is_url

_KEPT = "keyed-deltas"  # of the folder of local copies


@contextlib.contextmanager
def open_keyed_shards(
    program: LevelProgram, epoch: reports_pb2.Epoch, partition: int, cache: PackCache
) -> Iterator[Mapping[StageId, KeyedShard]]:
    """Open the keys of a level and partition that are in the state store, by their stages.

    Args:
        program: The program of the task.
        epoch: The epoch, as its driver describes it.
        partition: The partition.
        cache: What the last tasks of this worker have read.
    """
    places = program.shards
    shards: dict[StageId, KeyedShard] = {}
    if places.state_store is None:
        yield shards
        return
    with contextlib.ExitStack() as stack:
        for stage in program.stages:
            if not stage.in_epochs.may_be_in_state_store:
                continue
            if int(stage.stage) not in epoch.stores:  # reading the map would make an entry
                raise InvariantError(f"{stage.name} has no store number")
            number = epoch.stores[stage.stage]
            shard = keyed_shard(
                places,
                epoch.namespace,
                number,
                keyed_deltas(places, number, partition, _head_in(epoch, number, partition)),
                groups_of(partition, places.key_groups, program.partitions),
                scratch_folder(places),
                is_shared=program.limits.harnesses is not None,
                cache=cache.at(
                    PackPlace(places.state_store.url, epoch.namespace, number, partition),
                    places.pack_cache_bytes,
                ),
            )
            shards[stage.stage] = stack.enter_context(shard)
        yield shards


def keyed_deltas(
    places: ShardLocations, number: int, partition: int, head: KeyedHead
) -> KeyedDeltas:
    """Return the deltas of a stage's keys; see ``KeyedDeltas`` for the errors.

    Args:
        places: Where they are.
        number: The store number of the stage.
        partition: The partition.
        head: The head of the checkpoint.
    """
    name_of = functools.partial(_name_of, places.lineage, number)
    files: DeltaFiles = folder_of_epochs(places)
    if places.local is None or is_url(places.deltas):  # else they are on this machine anyway
        files = KeptDeltas(files, scratch_folder(places) / _KEPT)
    return KeyedDeltas(files, name_of, partition, head)


def keyed_shard(
    places: ShardLocations,
    namespace: str,
    number: int,
    deltas: KeyedDeltas,
    groups: range,
    scratch: Path,
    *,
    is_shared: bool = False,
    cache: PackCacheAt | None = None,
) -> KeyedShard:
    """Open the keys of a stage and partition in the state store; see ``KeyedShard``.

    Args:
        places: Where the store is.
        namespace: The namespace there.
        number: The store number of the stage.
        deltas: The deltas of the keys.
        groups: The groups of the partition.
        scratch: A folder on the local disk.
        is_shared: See ``KeyedShard``.
        cache: See ``KeyedShard``.
    """
    if places.state_store is None:
        raise InvariantError("there is no state store")
    store = key_store(places.state_store, namespace, number)
    return KeyedShard(
        store, groups, places.key_groups, deltas, scratch, is_shared=is_shared, cache=cache
    )


def keyed_report(number: int, head: KeyedHead) -> reports_pb2.KeyedReport:
    """Return the report of a stage's keys.

    Args:
        number: The store number of the stage.
        head: The head after the epoch.
    """
    report = reports_pb2.KeyedReport(store=number, needs_parts=bool(head.parts))
    if head.own is not None:
        (report.epoch, report.attempt), older = head.own
        report.older.extend(
            reports_pb2.DeltaId(epoch=epoch, attempt=older_attempt)
            for epoch, older_attempt in older
        )
    return report


def _head_in(epoch: reports_pb2.Epoch, number: int, partition: int) -> KeyedHead:
    for head in epoch.keyed:
        if (head.store, head.partition) == (number, partition):
            own = Head(DeltaId(head.epoch, head.attempt)) if head.epoch else None
            return KeyedHead(own, tuple(map(_part_of, head.parts)))
    return KeyedHead()


def _part_of(proto: reports_pb2.KeyedPart) -> Part:
    chains = (
        EarlierHead(chain.partition, Head(DeltaId(chain.epoch, chain.attempt)))
        for chain in proto.chains
    )
    return Part(proto.first, proto.end, tuple(chains))


def _name_of(lineage: str, number: int, partition: int, version: ShardVersion) -> str:
    return keyed_delta_name(lineage, number, partition, *version)
