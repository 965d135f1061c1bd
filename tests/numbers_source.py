"""An unbounded source of numbers, with the readers and checkpoint marks of ``UnboundedSource``."""

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.io.unbounded_source import (
    CheckpointMark,
    ReadFromUnboundedSource,
    UnboundedReader,
    UnboundedSource,
)
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp

from beam_spark_runner.recovery.manifest import epoch_in

POLL_S = 0.05
FIRST = 1_700_000_000  # seconds


class Finalized(NamedTuple):
    """A mark was finalized.

    Attributes:
        name: of the source.
        last: number that the mark covers.
        committed_at_cut: newest epoch that was committed when the mark was cut.
        committed: the same when it was finalized.
    """

    name: str
    last: int
    committed_at_cut: int
    committed: int


@dataclass(frozen=True, kw_only=True)
class Log:
    """Where readers note what happens to them.

    Attributes:
        folder: of the notes.
        checkpoints: the pipeline's checkpoint folder.
    """

    folder: str
    checkpoints: str

    def note(self, kind: str, *fields: object) -> None:
        """Write a note; from any process."""
        text = "\n".join(map(str, fields))
        path = Path(self.folder, f"{kind}-{uuid.uuid4().hex}")
        path.with_suffix(".part").write_text(text)
        path.with_suffix(".part").rename(path)

    def _notes(self, kind: str) -> list[list[str]]:
        return [
            path.read_text().splitlines()
            for path in Path(self.folder).glob(f"{kind}-*")
            if not path.suffix
        ]

    def committed(self) -> int:
        """Return the newest epoch that is committed."""
        names = (path.name for path in Path(self.checkpoints).rglob("*.manifest"))
        return max((epoch_in(name, "main") or 0 for name in names), default=0)

    def finalized(self) -> list[Finalized]:
        """Return which marks were finalized, in order."""
        notes = self._notes("finalized")
        return sorted(Finalized(name, *map(int, numbers)) for name, *numbers in notes)

    def begun(self) -> list[tuple[str, int]]:
        """Return which readers were made: the name of the source, and the first number."""
        return sorted((name, int(first)) for name, first in self._notes("begun"))

    def still_open(self) -> int:
        """Return how many readers have not been closed."""
        return len(self._notes("begun")) - len(self._notes("closed"))


@dataclass(frozen=True, kw_only=True)
class Mark(CheckpointMark):  # type: ignore[misc]
    """Says which numbers have been read."""

    name: str
    last: int
    committed_at_cut: int
    log: Log

    def finalize_checkpoint(self) -> None:
        """See Beam's ``CheckpointMark``."""
        self.log.note(
            "finalized", self.name, self.last, self.committed_at_cut, self.log.committed()
        )


class MarkCoder(Coder):  # type: ignore[misc]
    """Text, so that a mark is what its coder makes of it, and no object that was pickled."""

    def encode(self, mark: Mark) -> bytes:
        fields = mark.name, mark.last, mark.committed_at_cut, mark.log.folder, mark.log.checkpoints
        return "\n".join(map(str, fields)).encode()

    def decode(self, encoded: bytes) -> Mark:
        name, last, cut, folder, checkpoints = encoded.decode().splitlines()
        log = Log(folder=folder, checkpoints=checkpoints)
        return Mark(name=name, last=int(last), committed_at_cut=int(cut), log=log)

    def is_deterministic(self) -> bool:
        return True


class Reader(UnboundedReader):  # type: ignore[misc]
    """Reads some numbers, then has none available when it is asked next."""

    def __init__(self, source: "Numbers", first: int) -> None:
        self._source = source
        self._next = first
        self._current: int | None = None
        source.log.note("begun", source.name, first)

    def start(self) -> bool:
        """See Beam's ``UnboundedReader``, as of all methods."""
        return self.advance()

    def advance(self) -> bool:
        source = self._source
        has_paused = self._current is None
        pauses = source.at_once and self._next % source.at_once == 0 and not has_paused
        if pauses or self._next >= source.end:
            self._current = None
            return False
        if self._next == source.blocks_at and Path(source.fifo).exists():
            Path(source.fifo).read_text()
        self._current = self._next
        self._next += 1
        return True

    def get_current(self) -> tuple[str, int]:
        assert self._current is not None
        return self._source.name, self._current

    def get_current_timestamp(self) -> Timestamp:
        return Timestamp(self._source.first_s + self.get_current()[1])

    def get_watermark(self) -> Timestamp:
        has_ended = self._next >= self._source.end and (
            self._source.ends_with_its_last or self._current is None
        )
        if has_ended:
            return MAX_TIMESTAMP
        return Timestamp(self._source.first_s + self._next) if self._next else MIN_TIMESTAMP

    def get_checkpoint_mark(self) -> Mark:
        log = self._source.log
        return Mark(
            name=self._source.name,
            last=self._next - 1,
            committed_at_cut=log.committed(),
            log=log,
        )

    def close(self) -> None:
        self._source.log.note("closed", self._source.name)


@dataclass(frozen=True, kw_only=True)
class Numbers(UnboundedSource):  # type: ignore[misc]
    """Gives pairs of its name and a number.

    Attributes:
        name: of the source; each of several splits has one of its own.
        end: the number at which it ends.
        at_once: how many numbers are available at once; 0: all.
        splits: how many independent sources it splits into.
        ends_with_its_last: the watermark is at the end of time with the last number, not after it.
        blocks_at: the number at which a reader waits for a writer of a FIFO, if that is there.
        fifo: its path.
        first_s: the number n has the timestamp ``first_s`` + n, in seconds.
        log: gets the notes of readers.
    """

    name: str
    end: int
    at_once: int = 0
    splits: int = 1
    ends_with_its_last: bool = False
    blocks_at: int = -1
    fifo: str = ""
    first_s: int = FIRST
    log: Log

    def split(self, desired_num_splits: int, options: Any = None) -> Sequence["Numbers"]:
        """See Beam's ``UnboundedSource``, as of all methods."""
        if self.splits == 1:
            return [self]
        return [
            Numbers(
                name=f"{self.name}{number}",
                end=self.end,
                at_once=self.at_once,
                ends_with_its_last=self.ends_with_its_last,
                first_s=self.first_s,
                log=self.log,
            )
            for number in range(self.splits)
        ]

    def create_reader(self, options: Any, checkpoint_mark: Mark | None) -> Reader:
        return Reader(self, 0 if checkpoint_mark is None else checkpoint_mark.last + 1)

    def get_checkpoint_mark_coder(self) -> MarkCoder:
        return MarkCoder()


def pairs(source: Numbers, most_in_bundle: int = 10_000) -> Callable[[beam.Pipeline], Any]:
    """Return a step that reads a source as pairs that may be keys and values."""
    read = ReadFromUnboundedSource(
        source, poll_interval=POLL_S, max_records_per_bundle=most_in_bundle
    )
    return lambda p: p | read | beam.Map(tuple).with_output_types(tuple[str, int])
