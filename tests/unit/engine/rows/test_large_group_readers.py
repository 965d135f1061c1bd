"""Large groups as readers hand them out: what is kept can be read, what is not costs no disk."""

import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from apache_beam.coders import BytesCoder, IterableCoder, TupleCoder, WindowedValueCoder
from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import GlobalWindow, IntervalWindow, Sessions
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.rows.readers import reader_for
from beam_spark_runner.harness.values.spilled_group import (
    GroupClosedError,
    StreamedValues,
    ValueLogs,
)
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.state.spill import SpillFile
from tests.unit.engine.rows.written_rows import (
    Pushing,
    as_spark_would,
    edge_of,
    written,
)
from tests.unit.harness.values.spill_files import spill_files

KEYS = [bytes([65 + n]) for n in range(6)]
VALUES = [str(n).encode() * 300 for n in range(100, 200)]  # of each key; 90 kB
PAIRS = TupleCoder([BytesCoder(), BytesCoder()])
GROUPS = TupleCoder([BytesCoder(), IterableCoder(BytesCoder())])


class Reading:
    """Reads all groups, each larger than memory has room for, and calls ``push``."""

    def __init__(self, push: Callable[[bytes, Any], Any], *, sessions: bool) -> None:
        edge, window_coder, window = (
            (sessions_edge(), IntervalWindowCoder(), IntervalWindow(0, 5))
            if sessions
            else (edge_of(Delivery.GROUP_BY_KEY), GlobalWindowCoder(), GlobalWindow())
        )
        elements = [WindowedValue((k, v), Timestamp(0), (window,)) for k in KEYS for v in VALUES]
        batches = written(edge, WindowedValueCoder(PAIRS, window_coder), elements, limit=1 << 20)
        self.logs = ValueLogs(group_memory_bytes=1000)
        reader = reader_for(
            edge,
            WindowedValueCoder(GROUPS, window_coder),
            Pushing(lambda group: push(*group.value)),
            self.logs,
        )
        cursor = RowCursor(as_spark_would(edge, batches, random.Random(1)), {7}, pytest.fail)
        while cursor.load():
            reader.read(cursor)


def sessions_edge() -> Edge:
    windowing = Windowing(Sessions(5)).to_runner_api(PipelineContext())
    edge = edge_of(Delivery.GROUP_BY_KEY, is_global=False)
    return dataclasses.replace(edge, coded_windowing=windowing.SerializeToString())


@pytest.fixture(params=[False, True], ids=["global", "sessions"])
def sessions(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def written_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of what goes to disk."""
    sizes: list[int] = []
    append = SpillFile.append

    def noted(file: SpillFile, piece: bytes) -> int:
        sizes.append(len(piece))
        return append(file, piece)

    monkeypatch.setattr(SpillFile, "append", noted)
    return sizes


def raised_over(values: Any) -> Exception:
    try:
        raise ValueError
    except ValueError as error:
        return error  # its traceback has this frame, which has the values


class InACycle:
    def __init__(self, values: Any) -> None:
        self.values, self.itself = values, self

    def __iter__(self) -> Iterator[bytes]:
        yield from self.values


def begun(values: Any) -> Iterator[bytes]:
    iterator: Iterator[bytes] = iter(values)
    next(iterator)
    return iterator


@pytest.mark.parametrize(
    ("keep", "read", "missing"),
    [
        pytest.param(lambda values: values, list, 0, id="the iterable"),
        pytest.param(lambda values: (1, [values]), lambda kept: list(kept[1][0]), 0, id="a tuple"),
        pytest.param(iter, list, 0, id="an iterator"),
        pytest.param(begun, list, 1, id="an iterator that was begun"),
        pytest.param(lambda values: map(bytes, values), list, 0, id="a map object"),
        pytest.param(lambda values: (value for value in values), list, 0, id="a generator"),
        pytest.param(InACycle, list, 0, id="a reference cycle"),
        pytest.param(
            raised_over,
            lambda error: list(error.__traceback__.tb_frame.f_locals["values"]),
            0,
            id="an exception's traceback",
        ),
    ],
)
def test_however_values_are_kept_they_can_be_read_until_the_task_ends(
    keep: Callable[[Any], Any], read: Callable[[Any], list[bytes]], missing: int, sessions: bool
) -> None:
    kept: dict[bytes, Any] = {}
    late: list[Any] = []

    def push(key: bytes, values: Any) -> None:
        assert type(values) is StreamedValues
        kept[key] = keep(values)
        late.append(keep(values))

    reading = Reading(push, sessions=sessions)
    assert sorted(kept) == KEYS
    for some in kept.values():
        found = read(some)
        assert len(found) == len(VALUES) - missing
        assert set(found) <= set(VALUES)
    reading.logs.close()
    for some in late:
        with pytest.raises(GroupClosedError):
            read(some)


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda values: None, id="not at all"),
        pytest.param(lambda values: next(iter(values)), id="at the first one"),
        pytest.param(lambda values: sum(map(len, values)), id="at all of them"),
        pytest.param(lambda values: len(list(values)), id="in a list"),
    ],
)
def test_what_nobody_keeps_costs_no_disk(
    look: Callable[[Any], Any], written_bytes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for what was read: the same user may read it again."""
    # As far as memory goes; a reader has no way to know how much of a group will be read.
    monkeypatch.setattr(ValueLogs, "new", with_room_for_one)
    seen: list[bytes] = []

    def push(key: bytes, values: Any) -> None:
        seen.append(key)
        look(values)

    Reading(push, sessions=False)
    assert sorted(seen) == KEYS
    assert sum(written_bytes) == 0


def with_room_for_one(logs: ValueLogs, *, in_memory: bool = True) -> Any:
    """As if memory had room for a group: only one that is kept after the one before is written."""
    logs.room_bytes = max(logs.room_bytes, 100_000)
    return NEW(logs, in_memory=in_memory)


NEW = ValueLogs.new


def test_no_file_is_open_once_nobody_keeps_a_group(sessions: bool) -> None:
    open_files: list[int] = []

    def push(key: bytes, values: Any) -> None:
        assert sum(1 for _ in values) == len(VALUES)
        open_files.append(spill_files() - before)

    before = spill_files()
    reading = Reading(push, sessions=sessions)
    assert spill_files() == before
    assert 1 <= max(open_files) <= 2  # of the key, and of its window
    assert reading.logs.room_bytes == reading.logs.group_memory_bytes


def test_input_that_fails_does_not_seem_to_end() -> None:
    """User code that reads a group may catch what Spark's rows raise."""
    edge = edge_of(Delivery.GROUP_BY_KEY)
    coder = WindowedValueCoder(PAIRS, GlobalWindowCoder())
    elements = [WindowedValue((b"k", v), Timestamp(0), (GlobalWindow(),)) for v in VALUES]

    def failing() -> Iterator[pa.RecordBatch]:
        batches = as_spark_would(edge, written(edge, coder, elements), random.Random(1))
        for batch, _ in zip(batches, range(20), strict=False):
            yield batch
        raise OSError("the connection is gone")

    def push(group: WindowedValue) -> None:
        with pytest.raises(OSError, match="gone"):
            list(group.value[1])

    cursor = RowCursor(failing(), {7}, pytest.fail)
    group_coder = WindowedValueCoder(GROUPS, GlobalWindowCoder())
    reader = reader_for(edge, group_coder, Pushing(push), ValueLogs(group_memory_bytes=1000))

    def read_all() -> None:
        while cursor.load():
            reader.read(cursor)

    with pytest.raises(OSError, match="gone"):
        read_all()
