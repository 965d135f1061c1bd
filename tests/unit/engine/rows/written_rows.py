"""Rows as writers make them, sorted as Spark would, and read again."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from apache_beam.coders import (
    BytesCoder,
    IterableCoder,
    TupleCoder,
    WindowedValueCoder,
)
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import (
    PANE_INFO_UNKNOWN,
    PaneInfo,
    PaneInfoTiming,
    WindowedValue,
)
from hypothesis import strategies as st

from beam_spark_runner.core import routing
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.engine.program import Edge
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.rows.readers import reader_for
from beam_spark_runner.engine.rows.writers import writer_for
from beam_spark_runner.engine.rows.writing import Outlet
from beam_spark_runner.graph.model import TimestampCombiner
from beam_spark_runner.harness.values.spilled_group import (
    ValueLogs,
)
from beam_spark_runner.plan.model import Delivery

DEST = DestinationId(7)
LIMIT = 100
GLOBAL = GlobalWindow()
PAIRS = TupleCoder([BytesCoder(), BytesCoder()])
KEY_ENDS = WindowedValue("the key ends", MIN_TIMESTAMP, (GLOBAL,))


def edge_of(
    delivery: Delivery,
    *,
    is_global: bool = True,
    combiner: TimestampCombiner = TimestampCombiner.END_OF_WINDOW,
    access_pattern: str = "",
    is_keyed: bool = False,
    is_time_sorted: bool = False,
    key_groups: int = 0,
) -> Edge:
    return Edge(
        dest=DEST,
        code=routing.FIRST_CODE,
        delivery=delivery,
        name="Outer/step",
        is_global=is_global,
        timestamp_combiner=combiner,
        access_pattern=access_pattern,
        is_keyed=is_keyed,
        is_time_sorted=is_time_sorted,
        key_groups=key_groups,
    )


def written(
    edge: Edge,
    coder: Any,
    elements: Iterable[WindowedValue],
    *,
    limit: int = LIMIT,
    largest: int = 1 << 30,
    partitions: int = 4,
    first: int = 0,
) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = []
    outlet = Outlet(
        emit=batches.append,
        row_limit_bytes=limit,
        max_element_bytes=largest,
        partitions=partitions,
        first=first,
    )
    writer = writer_for(edge, coder, outlet)
    for element in elements:
        writer.accept(element)
    writer.flush()
    return batches


def as_spark_would(
    edge: Edge, batches: Sequence[pa.RecordBatch], chance: random.Random, size: int = 3
) -> Iterator[pa.RecordBatch]:
    """Shuffle all rows, sort them as ``exchange`` has it, and cut them into small batches."""
    if not batches:
        return
    table = pa.Table.from_batches(batches)
    order = list(range(len(table)))
    chance.shuffle(order)
    routes, orders = table["route"].to_pylist(), table["order"].to_pylist()
    if edge.is_ordered:
        order.sort(key=lambda row: (routes[row], orders[row]))
    elif edge.delivery in (Delivery.GROUP_BY_KEY, Delivery.BY_KEY):
        order.sort(key=lambda row: routes[row])
    table = table.take(pa.array(order, pa.int64())).combine_chunks()
    start = 0
    while start < len(table):
        count = chance.randint(1, size)
        yield from table.slice(start, count).to_batches()
        start += count


class Pushing:
    """A ``BundleInput``."""

    def __init__(self, push: Callable[[WindowedValue], Any]) -> None:
        self._push = push

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        for value, origin in zip(values, origins, strict=True):
            self._push(origin.with_value(value))

    def flush(self) -> None:
        """Nothing ever waits."""

    def advance_key(self) -> None:
        self._push(KEY_ENDS)


def read(
    edge: Edge,
    coder: Any,
    batches: Iterator[pa.RecordBatch],
    push: Callable[[WindowedValue], Any],
) -> None:
    strangers: list[pa.RecordBatch] = []
    cursor = RowCursor(batches, {int(edge.dest)}, strangers.append)
    logs = ValueLogs()
    reader = reader_for(edge, coder, Pushing(push), logs)
    while cursor.load():
        reader.read(cursor)
    logs.close()
    assert not strangers


def pair_coders(window_coder: Any, pairs: Any = PAIRS) -> tuple[Any, Any]:
    """Coder of the pairs that are written, and of the groups that are read."""
    key, value = pairs.coders()
    return (
        WindowedValueCoder(pairs, window_coder),
        WindowedValueCoder(TupleCoder([key, IterableCoder(value)]), window_coder),
    )


def sorted_groups(pairs: Iterable[tuple[Any, bytes]]) -> list[tuple[Any, list[bytes]]]:
    groups: dict[Any, list[bytes]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return sorted((key, sorted(values)) for key, values in groups.items())


KEYS = st.sampled_from([b"", b"a", b"b", b"\x00", b"aa", b"k" * 300])


@pytest.fixture(params=["hashes differ", "all hashes are equal"])
def hashes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "all hashes are equal":
        collide(monkeypatch)


def collide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xxhash.xxh64_intdigest", lambda key, seed: 5)


@pytest.fixture(params=[1, 600, 16 << 20], ids=["every group large", "some", "none"])
def memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    allow_memory(monkeypatch, request.param)


def allow_memory(monkeypatch: pytest.MonkeyPatch, limit_bytes: int) -> None:
    monkeypatch.setattr(ValueLogs.__init__, "__defaults__", (limit_bytes,))


def element_strategy() -> st.SearchStrategy[WindowedValue]:
    fixed = st.integers(-5, 5).map(lambda n: IntervalWindow(n, n + 1))
    panes = st.sampled_from([PANE_INFO_UNKNOWN, PaneInfo(True, False, PaneInfoTiming.EARLY, 0, -1)])
    return st.builds(
        WindowedValue,
        st.binary(max_size=LIMIT * 3),
        # Beam's coder of windowed values knows milliseconds.
        st.sampled_from([MIN_TIMESTAMP, Timestamp(-3), Timestamp(0), Timestamp(12.345)]),
        st.lists(fixed, min_size=1, max_size=3, unique=True).map(tuple),
        panes,
    )


def shown(values: Iterable[WindowedValue]) -> Counter[Any]:
    return Counter(
        (each.value, each.timestamp, frozenset(each.windows), each.pane_info) for each in values
    )


def groups_of(
    edge: Edge,
    coder: Any,
    batches: Iterator[pa.RecordBatch],
    take: Callable[[Any], Any] = list,
) -> list[tuple[Any, Any, WindowedValue]]:
    """Read all groups: (key, values as ``take`` sees them, the windowed value)."""
    found: list[tuple[Any, Any, WindowedValue]] = []

    def push(group: WindowedValue) -> None:
        key, values = group.value
        found.append((key, take(values), group.with_value(None)))

    read(edge, coder, batches, push)
    return found
