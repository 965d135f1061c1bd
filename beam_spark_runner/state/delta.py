"""Deltas: files with the changes of one attempt to its shard, and a slice of the rest (``chain``).

A file begins with a magic and the number of its format. Frames of records follow (the last record
of a key counts), then an end frame with the number of records and the chain of this version. A
frame is its kind, its length, a checksum, and its content. The checksums are chained, so that a
missing or misplaced frame is noticed, too. A tail has the length of the end frame, so that this can
be read without the records.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import zstandard

from beam_spark_runner._generated import store_pb2
from beam_spark_runner.recovery import sweep
from beam_spark_runner.state.chain import Chain, ShardVersion, chain_of, coded_chain
from beam_spark_runner.state.checked_blocks import DamagedFileError

FRAME_BYTES = 1 << 20
_FORMAT = 2
_MAGIC = struct.Struct(">8sH")
_NAME = b"bsrdelta"
_FRAME = struct.Struct(">cQI")  # kind, length, checksum
_RECORD = struct.Struct(">Iq")  # length of the key; of the value, or _DELETED
_TAIL = struct.Struct(">QI4s")  # length of the content of the end, its checksum, _LAST
_LAST = b"last"
_DELETED = -1
_READ_BYTES = 1 << 20  # of one read, so that a damaged length does not exhaust memory


class CorruptDeltaError(DamagedFileError):
    """A delta is missing or damaged."""

    kind = "delta"


def delta_name(lineage: str, level: int, partition: int, version: ShardVersion) -> str:
    """Return the file name of the delta of a version."""
    return sweep.delta_name(lineage, level, partition, *version)


class KeyedEnd(NamedTuple):
    """What the end of a keyed delta has in addition to its chain.

    Attributes:
        changes: How many of its first records are changes since the previous version.
        known: The last versions of its groups, oldest first; the last one is its own.
        since: The chain has all changes since this version; None: since the beginning.
    """

    changes: int = 0
    known: tuple[ShardVersion, ...] = ()
    since: ShardVersion | None = None


class DeltaWriter:
    """Writes a delta while its changes are made. At most one frame is in memory.

    All methods may raise ``OSError``; then the file can only be abandoned.

    Args:
        path: The path of the file, which is replaced if it exists.

    Attributes:
        size: The bytes of the records so far, uncompressed.
        count: The number of records so far.

    Raises:
        OSError: The file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._frame = bytearray()
        self.count = 0
        self._checksum = 0
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._file = path.open("wb")
        self._file.write(_MAGIC.pack(_NAME, _FORMAT))

    def put(self, key: bytes, value: bytes) -> None:
        """Add the new value of a key."""
        self._add(_RECORD.pack(len(key), len(value)) + key + value)

    def delete(self, key: bytes) -> None:
        """Add the deletion of a key."""
        self._add(_RECORD.pack(len(key), _DELETED) + key)

    def finish(self, chain: Chain, keyed: KeyedEnd | None = None) -> None:
        """End the file and close it.

        Args:
            chain: The deltas from which this version is rebuilt; this delta is the last link.
            keyed: What only a keyed delta has.
        """
        self._flush()
        end = store_pb2.DeltaEnd(chain=coded_chain(chain), records=self.count)
        if keyed is not None:
            end.changes = keyed.changes
            end.known.extend(store_pb2.Version(epoch=e, attempt=a) for e, a in keyed.known)
            if keyed.since is not None:
                end.since.epoch, end.since.attempt = keyed.since
        content = end.SerializeToString()
        self._write(b"E", content)
        self._file.write(_TAIL.pack(len(content), zlib.crc32(content), _LAST))
        self._file.close()

    def abandon(self) -> None:
        """Remove the file, finished or not. May be called again."""
        # Closing flushes the buffer, which fails on a full disk; the data is not needed.
        with suppress(OSError):
            self._file.close()
        self.path.unlink(missing_ok=True)

    def _add(self, record: bytes) -> None:
        self._frame += record
        self.count += 1
        self.size += len(record)
        if len(self._frame) >= FRAME_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._frame:
            self._write(b"R", self._compressor.compress(self._frame))
            self._frame = bytearray()

    def _write(self, kind: bytes, content: bytes) -> None:
        self._checksum = _checksum(kind, content, self._checksum)
        self._file.write(_FRAME.pack(kind, len(content), self._checksum))
        self._file.write(content)


def read_chain(stream: BinaryIO, name: str) -> Chain:
    """Read the chain of a delta from its end frame; the delta itself is the last link.

    Args:
        stream: The content of the file; seekable.
        name: The name of the file, for messages.

    Raises:
        CorruptDeltaError: The end is damaged.
    """
    return _Reader(stream, name).chain()


def read_keyed_end(stream: BinaryIO, name: str) -> KeyedEnd:
    """Read what the end of a keyed delta has in addition to its chain; see ``read_chain``."""
    end = _Reader(stream, name).end()
    since = end.since if end.HasField("since") else None
    return KeyedEnd(
        end.changes,
        tuple(ShardVersion(each.epoch, each.attempt) for each in end.known),
        None if since is None else ShardVersion(since.epoch, since.attempt),
    )


def read_changes(
    stream: BinaryIO, name: str, version: ShardVersion
) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the records of a delta: keys with their values; None: the key was deleted.

    Of several records of a key the last one counts. The delta is known to be complete only after
    the last record was yielded without an error.

    Args:
        stream: The content of the file; seekable.
        name: The name of the file, for messages.
        version: The version that the delta must have.

    Raises:
        CorruptDeltaError: The file is damaged, or is the delta of another version.
    """
    reader = _Reader(stream, name)
    yield from reader.records()
    if (last := reader.chain()[-1].version) != version:
        raise CorruptDeltaError(name, f"it is that of {last}")


class _Reader:
    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name

    def _check_magic(self) -> None:
        self._stream.seek(0)
        magic, format_ = _MAGIC.unpack(self._read(_MAGIC.size))
        if magic != _NAME:
            raise self._error("it does not begin as a delta does")
        if format_ != _FORMAT:
            raise self._error(f"its format is {format_}, but only {_FORMAT} is known here")

    def end(self) -> store_pb2.DeltaEnd:
        self._check_magic()
        end = self._stream.seek(0, 2) - _TAIL.size
        self._stream.seek(max(0, end))
        length, checksum, last = _TAIL.unpack(self._read(_TAIL.size))
        if last != _LAST or length > end:
            raise self._error("it is cut off, or its end is damaged")
        self._stream.seek(end - length)
        content = self._read(length)
        if zlib.crc32(content) != checksum:
            raise self._error("the checksum of its end is wrong")
        return store_pb2.DeltaEnd.FromString(content)

    def chain(self) -> Chain:
        chain = chain_of(self.end().chain)
        if not chain:
            raise self._error("it does not say which version it is")
        return chain

    def records(self) -> Iterator[tuple[bytes, bytes | None]]:
        self._check_magic()
        decompressor = zstandard.ZstdDecompressor()
        count = checksum = 0
        while True:
            kind, content, checksum = self._frame(checksum)
            if kind != b"R":
                break
            try:
                frame = decompressor.decompress(content)
            except zstandard.ZstdError as error:
                raise self._error(f"a frame cannot be decompressed: {error}") from error
            for record in self._records_of(frame):
                count += 1
                yield record
        if kind != b"E":
            raise self._error(f"it has a frame of the unknown kind {kind!r}")
        if count != (total := store_pb2.DeltaEnd.FromString(content).records):
            raise self._error(f"it has {count} records, but says {total}")
        self._read(_TAIL.size)
        if self._stream.read(1):
            raise self._error("something follows its end")

    def _records_of(self, frame: bytes) -> Iterator[tuple[bytes, bytes | None]]:
        position, end = 0, len(frame)
        while position < end:
            if position + _RECORD.size > end:
                raise self._error("a record is cut off")
            key_length, value_length = _RECORD.unpack_from(frame, position)
            middle = position + _RECORD.size + key_length
            key = frame[middle - key_length : middle]
            position = middle + max(value_length, 0)
            if position > end:
                raise self._error("a record is cut off")
            yield key, None if value_length == _DELETED else frame[middle:position]

    def _frame(self, checksum: int) -> tuple[bytes, bytes, int]:
        """Return a frame's kind, content and checksum, given that of the previous frame."""
        kind, length, new_checksum = _FRAME.unpack(self._read(_FRAME.size))
        content = self._read(length)
        if new_checksum != _checksum(kind, content, checksum):
            raise self._error("the checksum of a frame is wrong")
        return kind, content, new_checksum

    def _read(self, length: int) -> bytes:
        pieces = []
        while length:
            piece = self._stream.read(min(length, _READ_BYTES))
            if not piece:
                raise self._error("it is cut off")
            pieces.append(piece)
            length -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _error(self, why: str) -> CorruptDeltaError:
        return CorruptDeltaError(self._name, why)


def _checksum(kind: bytes, content: bytes, previous: int) -> int:
    return zlib.crc32(content, zlib.crc32(kind, previous))
