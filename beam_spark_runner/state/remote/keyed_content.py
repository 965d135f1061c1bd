"""Makes ordinary records from the keyed deltas of a partition, without a state store."""

from collections.abc import Iterable, Iterator

from beam_spark_runner.state.locked_records import SortedRecords
from beam_spark_runner.state.remote import packs
from beam_spark_runner.state.remote.key_store import Change, Structure
from beam_spark_runner.state.remote.keyed_keys import (
    STAGE,
    RecordOfKey,
    delta_key,
    prefix_of,
    split_delta_key,
    split_user_key,
)
from beam_spark_runner.state.remote.overlay import Overlay
from beam_spark_runner.state.store_keys import StoreKeys


def put_content(
    content: Iterable[tuple[int, Change]], entries: Overlay, records: SortedRecords
) -> None:
    """Put the records that keyed deltas have, of the stage ``STAGE``.

    Args:
        content: See ``KeyedDeltas.content``; of several changes of an entry, the last one counts.
        entries: Takes the entries meanwhile. It is empty.
        records: Gets the records.

    Raises:
        CorruptDeltaError: A delta is damaged or missing.
        ShardStorageError: The local disk or the storage of deltas does not work.
    """
    for group, change in content:
        entries.put(delta_key(group, change.structure, change.name), change.value)
    stage = StoreKeys(STAGE).stage
    for key, value in entries.items(b""):
        if value is not None:
            _, structure, name = split_delta_key(key)
            for record, its_value in _records_of(structure, name, value):
                records.put(stage + record, its_value)


def _records_of(structure: Structure, name: bytes, value: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the records of an entry, without their stage."""
    match structure:
        case Structure.PACKS:
            for of_key, its_value in packs.decode(value).records.items():
                yield RecordOfKey(name, of_key).key(), its_value
        case Structure.OUTLYING:
            yield split_user_key(name).key(), value
        case _:
            yield prefix_of(structure) + name, value
