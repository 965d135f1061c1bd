"""Files of blocks, of which each is verified when it is read: views, and rows between Spark jobs.

A file is a head, the blocks, an index, and a tail. The index has the size and the digest of each
block, and two numbers that say what is in it. The tail has the length of the index and its digest,
which covers the name of the file, too. So a reader verifies the index once, and of the blocks only
those that it reads, and notices bytes that were changed or lost, blocks in another order, and
another file in the place of this one.
"""

import struct
from collections.abc import Callable, Iterator
from typing import BinaryIO, ClassVar, NamedTuple, TypeAlias

import xxhash
from typing_extensions import override

from beam_spark_runner.core.errors import StoredDataError
from beam_spark_runner.recovery.sweep import what_to_do_about

ALIGNMENT = 64
"""Blocks begin at multiples of it, so that Arrow's buffers are aligned in a mapped file."""
_HEAD = b"bsrblock\0\1".ljust(ALIGNMENT, b"\0")
_ENTRY = struct.Struct("<qQqq")  # size of a block, its digest, first and last
_TAIL = struct.Struct("<QQ8s")  # length of the index, its digest, _LAST
_LAST = b"bsrindex"

Read: TypeAlias = Callable[[int, int], bytes | memoryview]
"""Returns bytes of a file, from an offset on; fewer only at its end."""


class DamagedFileError(StoredDataError):
    """A file that the runner has written is missing or damaged.

    Args:
        name: The name of the file.
        why: What is wrong with it.
    """

    kind: ClassVar[str] = "file"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name, self.why = name, why

    @override
    def __str__(self) -> str:
        advice = what_to_do_about(self.name)
        return f"the {self.kind} {self.name} cannot be used: {self.why}{advice}"


class Block(NamedTuple):
    """A block, as the index describes it.

    Attributes:
        start: Its offset in the file.
        size: Its bytes.
        digest: The digest of its bytes.
        first: A number that its writer has given; rows of side inputs are sorted by such numbers.
        last: Another one.
    """

    start: int
    size: int
    digest: int
    first: int
    last: int


class BlockWriter:
    """Writes a file of blocks.

    All methods may raise ``OSError``; then the file can only be abandoned.

    Args:
        sink: Where the bytes go. It stays open.
        name: The name by which readers know the file; empty: they do not.
    """

    def __init__(self, sink: BinaryIO, name: str = "") -> None:
        self._sink, self._name = sink, name
        self._index = bytearray()
        self._sink.write(_HEAD)

    def add(self, block: bytes | memoryview, first: int = 0, last: int = 0) -> None:
        """Write a block. It is padded with zeros: its reader has to know where it ends."""
        content = b"".join((block, bytes(-len(block) % ALIGNMENT)))
        digest = xxhash.xxh3_64_intdigest(content)
        self._index += _ENTRY.pack(len(content), digest, first, last)
        self._sink.write(content)  # in one piece: a buffered sink has nothing to write before it

    def finish(self) -> None:
        """Write the index."""
        self._sink.write(self._index)
        digest = _digest_of_index(self._index, self._name)
        self._sink.write(_TAIL.pack(len(self._index), digest, _LAST))


class BlockReader:
    """Reads a file of blocks.

    Args:
        read: Returns bytes of the file.
        length: The bytes of the file.
        name: The name that the writer has used.
        place: How errors call the file; None: by its name.

    Attributes:
        blocks: The blocks.

    Raises:
        DamagedFileError: The head or the index is damaged, or the file is another one.
        OSError: The file cannot be read.
    """

    def __init__(self, read: Read, length: int, name: str, place: str | None = None) -> None:
        self._read = read
        self._place = name if place is None else place
        if length < len(_HEAD) + _TAIL.size:
            raise self._error("it is cut off")
        if read(0, len(_HEAD)) != _HEAD:
            raise self._error("it does not begin as it should")
        end = length - _TAIL.size
        size, digest, last = _TAIL.unpack(read(end, _TAIL.size))
        if last != _LAST or size > end - len(_HEAD) or size % _ENTRY.size:
            raise self._error("it is cut off, or its end is damaged")
        index = read(end - size, size)
        if digest != _digest_of_index(index, name):
            raise self._error("the digest of its index is wrong, or it is another file")
        self.blocks: list[Block] = []
        start = len(_HEAD)
        for entry in _ENTRY.iter_unpack(index):
            self.blocks.append(Block(start, *entry))
            start += entry[0]
        if start != end - size:
            raise self._error("bytes are missing or were added")

    def content(self, block: Block) -> bytes | memoryview:
        """Return the bytes of a block, with their padding.

        Raises:
            DamagedFileError: It is damaged.
            OSError: The file cannot be read.
        """
        content = self._read(block.start, block.size)
        if xxhash.xxh3_64_intdigest(content) != block.digest:
            raise self._error(f"the digest of the block at {block.start} is wrong")
        return content

    def contents(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of all blocks; see ``content``."""
        return map(self.content, self.blocks)

    def _error(self, why: str) -> DamagedFileError:
        return DamagedFileError(self._place, why)


def reader_of(stream: BinaryIO, name: str, place: str | None = None) -> BlockReader:
    """Return a reader of a seekable stream; see ``BlockReader``."""

    def read(start: int, size: int) -> bytes:
        stream.seek(start)
        return stream.read(size)

    return BlockReader(read, stream.seek(0, 2), name, place)


def _digest_of_index(index: bytes | bytearray | memoryview, name: str) -> int:
    return xxhash.xxh3_64_intdigest(bytes(index) + name.encode())
