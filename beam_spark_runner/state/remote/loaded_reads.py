"""What was read for requests that wait for it: outlying values, and pages of names."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.state.remote.key_store import Known, Names, Packs, Read, Values

_ENTRY_BYTES = 150  # of memory, in addition to the content


class MissedReadsError(Exception):
    """A request needs what is not loaded. It is executed again once that is.

    Attributes:
        reads: What it needs, as far as it is known.
    """

    def __init__(self, reads: Sequence[Read]) -> None:
        super().__init__(reads)
        self.reads = reads


class LoadedReads:
    """Values and pages that were read. They do not change, since they are of one version.

    Args:
        limit_bytes: About the most memory; what was used last remains.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._values: OrderedDict[bytes, bytes | None] = OrderedDict()
        self._pages: OrderedDict[Names, list[bytes | None]] = OrderedDict()
        self._bytes = 0

    def find(self, read: Read) -> list[bytes | None] | Read:
        """Return what a read would, as ``Reply.values``; or the part of it that is not loaded."""
        if isinstance(read, Names):
            page = self._pages.get(read)
            if page is None:
                return read
            self._pages.move_to_end(read)
            return page
        if not isinstance(read, Values):
            return read
        values = self._values
        missing = [name for name in read.names if name not in values]
        if missing:
            return Values(read.group, missing)
        for name in read.names:
            values.move_to_end(name)
        return [values[name] for name in read.names]

    def keep(self, read: Values | Names, found: Sequence[bytes | None]) -> None:
        """Keep what was read."""
        if isinstance(read, Names):
            if read not in self._pages:
                self._bytes += sum(map(_size, found))
            self._pages[read] = [*found]
        else:
            for name, value in zip(read.names, found, strict=True):
                if name not in self._values:
                    self._bytes += _size(name) + _size(value)
                self._values[name] = value
        while self._bytes > self._limit_bytes and self._values:
            name, value = self._values.popitem(last=False)
            self._bytes -= _size(name) + _size(value)
        while self._bytes > self._limit_bytes and self._pages:
            _, page = self._pages.popitem(last=False)
            self._bytes -= sum(_size(name) for name in page)


def merged(reads: Sequence[Read]) -> Iterator[Read]:
    """Yield as few reads as return the same: one for each kind of names of a group."""
    names: dict[tuple[type[Values | Packs | Known], int], dict[bytes, None]] = {}
    pages: dict[Names, None] = {}
    for read in reads:
        if isinstance(read, Names):
            pages[read] = None
        elif isinstance(read, Values | Packs | Known):
            names.setdefault((type(read), read.group), {}).update(dict.fromkeys(read.names))
        else:
            raise InvariantError(f"a request has missed {read!r}")
    yield from pages
    for (kind, group), its_names in names.items():
        yield kind(group, [*its_names])


def _size(value: bytes | None) -> int:
    return _ENTRY_BYTES + len(value or b"")
