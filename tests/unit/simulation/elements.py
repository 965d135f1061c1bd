"""What the simulated pipeline is made of: rows between levels, and what comes out of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from apache_beam.coders import (
    BytesCoder,
    IterableCoder,
    StrUtf8Coder,
    TupleCoder,
    VarIntCoder,
    WindowedValueCoder,
)
from apache_beam.coders.coders import GlobalWindowCoder
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import WindowFn
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.routing import KEY_GROUPS, partitions_of_keys

SECOND_US = 1_000_000
SOURCE, GROUPED, COUNTED, TOTALS, LOOKED = range(5)
"""Destinations, which number the stages, too: the level of each is below."""
LEVELS: Mapping[int, tuple[int, ...]] = {
    0: (SOURCE,),
    1: (GROUPED, COUNTED, LOOKED),
    2: (TOTALS,),
}


class Row(NamedTuple):
    """An element on its way to a stage."""

    dest: int
    key: str
    value: int
    time_us: int


class Emitted(NamedTuple):
    """An element that has come out of a stage, in a form that can be compared."""

    dest: int
    key: str
    values: tuple[int, ...]
    time_us: int
    about: str


@dataclass(frozen=True)
class TaskInput:
    """What a task of an epoch begins with.

    Attributes:
        number: of the epoch.
        clock_us: processing time.
        budget_us: of the epoch.
        feeds_impulses: the epoch is the first one.
        before_us: watermark of each destination as the epoch before left it.
        arriving_us: the same, as those say who feed it.
        rows: for this task.
        partition: of the task.
        partitions: of its level.
    """

    number: int
    clock_us: int
    budget_us: int
    feeds_impulses: bool
    before_us: Mapping[int, int]
    arriving_us: Mapping[int, int]
    rows: Sequence[Row]
    partition: int
    partitions: int


class Advance(NamedTuple):
    """That a key's time has advanced.

    Attributes:
        key: which.
        fired: after so many timers the stage was interrupted; None: it was not.
        window: of a grouping: the only one that has advanced; None: those with new elements have.
    """

    key: str
    fired: int | None = None
    window: Any = None


@dataclass
class TaskOutput:
    """What a task has made of that.

    Attributes:
        rows: for the next level.
        emitted: all elements that came out of stages.
        advances: of each stage that was interrupted or not, in their order.
        inputs_us: watermarks of the stages' inputs.
        outputs_us: by destination in the next level.
        next_event_us: when the next timer is due.
        next_clock_us: the same in processing time.
        was_interrupted: something that is due has not fired.
        finished: stages to which nothing comes any more, and that have nothing left.
        done: records of the declarative step that are done, with their keys, in their order.
        left: those that are left for the next epoch, likewise.
    """

    rows: list[Row] = field(default_factory=list)
    emitted: list[Emitted] = field(default_factory=list)
    advances: dict[int, list[Advance]] = field(default_factory=dict)
    inputs_us: dict[int, int] = field(default_factory=dict)
    outputs_us: dict[int, int] = field(default_factory=dict)
    next_event_us: int | None = None
    next_clock_us: int | None = None
    was_interrupted: bool = False
    finished: set[int] = field(default_factory=set)
    done: list[tuple[str, Any]] = field(default_factory=list)
    left: list[tuple[str, Any]] = field(default_factory=list)

    def send(self, stage: int, element: WindowedValue, key: str, values: Sequence[int]) -> None:
        """Take an element out of a stage of level 1 or 2."""
        pane = element.pane_info
        about = f"{element.windows} {pane.timing} {pane.index} {pane.nonspeculative_index} "
        about += f"{pane.is_first} {pane.is_last}"
        time_us = element.timestamp.micros
        self.emitted.append(Emitted(stage, key, tuple(sorted(values)), time_us, about))
        if stage != TOTALS:
            self.rows.append(Row(TOTALS, key[:1], len(values), time_us))

    def note_due(self, event_us: int | None, clock_us: int | None) -> None:
        """Remember when a stage has something due."""
        events = [each for each in (self.next_event_us, event_us) if each is not None]
        clocks = [each for each in (self.next_clock_us, clock_us) if each is not None]
        self.next_event_us, self.next_clock_us = (
            min(events, default=None),
            min(clocks, default=None),
        )

    def comparable(self) -> tuple[Any, ...]:
        """Return what two runs over the same input must agree on."""
        return (
            sorted(self.rows),
            sorted(self.emitted),
            self.inputs_us,
            self.outputs_us,
            self.next_event_us,
            self.next_clock_us,
            self.was_interrupted,
            self.finished,
        )


_ELEMENT_CODER = WindowedValueCoder(BytesCoder(), GlobalWindowCoder())


def decoded_events(coded: Sequence[bytes]) -> list[tuple[bytes, int]]:
    """Return elements of a TestStream and their timestamps, as the driver has encoded them."""
    elements = map(_ELEMENT_CODER.decode, coded)
    return [(each.value, each.timestamp.micros) for each in elements]


def rows_of_event(coded: bytes, time_us: int, dests: Sequence[int]) -> list[Row]:
    """Return the rows that an element of a TestStream becomes."""
    key, value = coded.decode().split(":")
    return [Row(dest, key, int(value), time_us) for dest in dests]


KEY_CODER = StrUtf8Coder()
VALUE_CODER = VarIntCoder()


def group_coder(windowing: Windowing) -> WindowedValueCoder:
    """Return the coder of what a grouping gives."""
    pairs = TupleCoder([KEY_CODER, IterableCoder(VALUE_CODER)])
    return WindowedValueCoder(pairs, windowing.windowfn.get_window_coder())


def windowed(row: Row, window_fn: WindowFn) -> WindowedValue:
    """Return a row's value in its windows."""
    time = Timestamp(micros=row.time_us)
    windows = tuple(window_fn.assign(WindowFn.AssignContext(time)))
    return WindowedValue(row.value, time, windows)


def coded_key(key: str) -> bytes:
    """Return a key as stores know it."""
    coded: bytes = KEY_CODER.get_impl().encode_nested(key)
    return coded


def decoded_key(coded: bytes) -> str:
    """Return the key of ``coded_key``."""
    key: str = KEY_CODER.decode_nested(coded)
    return key


def partition_of(key: str, partitions: int) -> int:
    """Return the task that has a key."""
    return int(partitions_of_keys([coded_key(key)], 1, KEY_GROUPS, partitions)[0])
