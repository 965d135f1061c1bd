"""One delta: the file of what one task attempt changed in its shard.

A file begins with a magic and the number of its format. Frames follow: the header, records in
the order of the changes (the last one of a key counts), and an end that says how many there
were. A frame is its kind, its length, a checksum, and its content. The checksums of the records
and of the end are chained, so that a frame that is missing or elsewhere is noticed, too.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import zstandard

from beam_spark_runner.core.errors import RunnerError
from beam_spark_runner.recovery import sweep

FRAME_BYTES = 1 << 20
_FORMAT = 1
_MAGIC = struct.Struct(">8sH")
_NAME = b"bsrdelta"
_FRAME = struct.Struct(">cQI")  # kind, length, checksum
_HEADER = struct.Struct(">QQ?QQI")  # version, whether there is a parent, parent, length of chain
_RECORD = struct.Struct(">Iq")  # length of the key; of the value, or _DELETED
_COUNT = struct.Struct(">Q")
_DELETED = -1
_READ_BYTES = 1 << 20  # at once: what a damaged length says is not asked for


class CorruptDeltaError(RunnerError):
    """A delta that is needed cannot be read as it was written.

    Args:
        name: of its file.
        why: what is wrong with it.
    """

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name, self.why = name, why

    def __str__(self) -> str:
        return f"the delta {self.name} cannot be used: {self.why}"


class Version(NamedTuple):
    """Which state of a shard: that which one attempt left behind."""

    epoch: int
    attempt: int  # random, of 63 bits


@dataclass(frozen=True, slots=True)
class DeltaHeader:
    """What a delta says of itself.

    Attributes:
        version: which it leads to.
        parent: which its changes begin with; None: it is complete in itself.
        length: how many deltas must be read to rebuild the version, this one included.
    """

    version: Version
    parent: Version | None
    length: int


def delta_name(lineage: str, level: int, partition: int, version: Version) -> str:
    """Return the name of the file of a delta that leads to a version."""
    return sweep.delta_name(lineage, level, partition, *version)


class DeltaWriter:
    """Writes a delta while its changes are made. A frame is in memory, not more.

    All but the constructor may raise ``OSError``; then the file can only be abandoned.

    Args:
        path: of the file, which is replaced if it exists.
        header: may be corrected in the end.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path, header: DeltaHeader) -> None:
        self.path = path
        self._header = header
        self._frame = bytearray()
        self._count = 0
        self._checksum = 0
        self._compressor = zstandard.ZstdCompressor(level=1)
        self._file = path.open("wb")
        self._file.write(_MAGIC.pack(_NAME, _FORMAT) + _header_frame(header))

    def put(self, key: bytes, value: bytes) -> None:
        """Add that a key has a value now."""
        self._frame += _RECORD.pack(len(key), len(value))
        self._frame += key
        self._frame += value
        self._added()

    def delete(self, key: bytes) -> None:
        """Add that a key has no value any more."""
        self._frame += _RECORD.pack(len(key), _DELETED)
        self._frame += key
        self._added()

    def finish(self, header: DeltaHeader | None = None) -> None:
        """End the file and close it.

        Args:
            header: in place of the first one: an attempt may get its version only now.
        """
        self._flush()
        self._write(b"E", _COUNT.pack(self._count))
        if header is not None:
            self._file.seek(_MAGIC.size)
            self._file.write(_header_frame(header))
        self._file.close()

    def abandon(self) -> None:
        """Remove the file, finished or not. May be called again."""
        # A full disk fails what is still to be written, which nobody wants now.
        with suppress(OSError):
            self._file.close()
        self.path.unlink(missing_ok=True)

    def _added(self) -> None:
        self._count += 1
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


def read_delta(
    stream: BinaryIO, name: str
) -> tuple[DeltaHeader, Iterator[tuple[bytes, bytes | None]]]:
    """Read a delta from its beginning.

    Args:
        stream: stays open, and belongs to the iterator until that has ended.
        name: of the file, for messages.

    Returns:
        The header, and the changes in the order in which they were made: keys with their values;
        None: the key was deleted. Only who has taken all of them knows that all are there.

    Raises:
        CorruptDeltaError: the file is damaged. The iterator raises it, too.
    """
    reader = _Reader(stream, name)
    return reader.header(), reader.records()


class _Reader:
    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name

    def header(self) -> DeltaHeader:
        magic, format_ = _MAGIC.unpack(self._read(_MAGIC.size))
        if magic != _NAME:
            raise self._error("it does not begin as a delta does")
        if format_ != _FORMAT:
            raise self._error(f"its format is {format_}, but only {_FORMAT} is known here")
        kind, content, _ = self._frame(0)
        if kind != b"H" or len(content) != _HEADER.size:
            raise self._error("it has no header")
        epoch, attempt, has_parent, parent_epoch, parent_attempt, length = _HEADER.unpack(content)
        parent = Version(parent_epoch, parent_attempt) if has_parent else None
        return DeltaHeader(Version(epoch, attempt), parent, length)

    def records(self) -> Iterator[tuple[bytes, bytes | None]]:
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
        if kind != b"E" or len(content) != _COUNT.size:
            raise self._error(f"it has a frame of the unknown kind {kind!r}")
        if count != (said := _COUNT.unpack(content)[0]):
            raise self._error(f"it has {count} records, but says {said}")
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
        """Return a frame's kind, content and checksum, given that of the frame before."""
        kind, length, said = _FRAME.unpack(self._read(_FRAME.size))
        content = self._read(length)
        if said != _checksum(kind, content, checksum):
            raise self._error("the checksum of a frame is wrong")
        return kind, content, said

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


def _header_frame(header: DeltaHeader) -> bytes:
    """Return the frame, which has the same length for all headers."""
    parent = header.parent or Version(0, 0)
    has_parent = header.parent is not None
    content = _HEADER.pack(*header.version, has_parent, *parent, header.length)
    return _FRAME.pack(b"H", len(content), _checksum(b"H", content, 0)) + content


def _checksum(kind: bytes, content: bytes, before: int) -> int:
    return zlib.crc32(content, zlib.crc32(kind, before))
