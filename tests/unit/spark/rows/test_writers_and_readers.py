"""What writers write, readers read, however Spark cuts and orders the rows between them."""

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from apache_beam.coders import (
    BytesCoder,
    FastPrimitivesCoder,
    FloatCoder,
    IterableCoder,
    StrUtf8Coder,
    TupleCoder,
    VarIntCoder,
    WindowedValueCoder,
)
from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder
from apache_beam.runners.pipeline_context import PipelineContext
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import GlobalWindow, IntervalWindow, Sessions
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import (
    PANE_INFO_UNKNOWN,
    PaneInfo,
    PaneInfoTiming,
    WindowedValue,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_spark_runner.core import routing, urns
from beam_spark_runner.core.errors import BundleFailedError
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.core.time import whole_milliseconds
from beam_spark_runner.graph.model import TimestampCombiner
from beam_spark_runner.harness.grouping.operator import GroupsInPanes
from beam_spark_runner.harness.values.spill import (
    MEMORY_LIMIT_BYTES,
    GroupClosedError,
    StreamedValues,
    ValueLogs,
)
from beam_spark_runner.plan.model import Delivery
from beam_spark_runner.spark.program import Edge
from beam_spark_runner.spark.rows import schema
from beam_spark_runner.spark.rows.cursor import RowCursor
from beam_spark_runner.spark.rows.group_reader import GroupReader
from beam_spark_runner.spark.rows.keys import join_key, split_key
from beam_spark_runner.spark.rows.readers import ElementReader, reader_for
from beam_spark_runner.spark.rows.writers import writer_for
from beam_spark_runner.spark.rows.writing import LONG_KEY_BYTES, EncodingError, Outlet

DEST = DestinationId(7)
LIMIT = 100
GLOBAL = GlobalWindow()
PAIRS = TupleCoder([BytesCoder(), BytesCoder()])
KEY_ENDS = WindowedValue("the key ends", MIN_TIMESTAMP, (GLOBAL,))


def end_of(window: Any) -> Timestamp:
    """Beam's wire carries milliseconds."""
    return Timestamp(micros=whole_milliseconds(window.max_timestamp().micros))


def edge_of(
    delivery: Delivery,
    *,
    is_global: bool = True,
    combiner: TimestampCombiner = TimestampCombiner.END_OF_WINDOW,
    access_pattern: str = "",
    is_keyed: bool = False,
    is_time_sorted: bool = False,
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
PAIR_LISTS = st.lists(st.tuples(KEYS, st.binary(max_size=LIMIT * 3)), max_size=40)


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


@pytest.mark.usefixtures("hashes", "memory")
class TestGroups:
    """Each claim with and without colliding hashes, in little and in much memory."""

    @given(PAIR_LISTS, st.randoms(use_true_random=False))
    @settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_global(self, pairs: list[tuple[bytes, bytes]], chance: random.Random) -> None:
        edge = edge_of(Delivery.GROUP_BY_KEY)
        coder, group_coder = pair_coders(GlobalWindowCoder())
        batches = written(edge, coder, [WindowedValue(p, Timestamp(5), (GLOBAL,)) for p in pairs])
        found = groups_of(edge, group_coder, as_spark_would(edge, batches, chance))
        assert sorted((key, sorted(values)) for key, values, _ in found) == sorted_groups(pairs)
        for _, _, group in found:
            assert group.timestamp == end_of(GLOBAL)
            assert group.windows == (GLOBAL,)
            assert group.pane_info == PaneInfo(True, True, PaneInfoTiming.ON_TIME, 0, 0)

    @pytest.mark.parametrize("combiner", list(TimestampCombiner))
    @pytest.mark.parametrize("is_global", [True, False], ids=["global", "windows"])
    @given(
        pairs=st.lists(st.tuples(KEYS, st.integers(-30, 30)), max_size=40),
        chance=st.randoms(use_true_random=False),
    )
    @settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_timestamps(
        self,
        combiner: TimestampCombiner,
        is_global: bool,
        pairs: list[tuple[bytes, int]],
        chance: random.Random,
    ) -> None:
        """Values are as long as their time; sliding windows of 20 s, every 10 s."""
        edge = edge_of(Delivery.GROUP_BY_KEY, is_global=is_global, combiner=combiner)
        window_coder = GlobalWindowCoder() if is_global else IntervalWindowCoder()
        coder, group_coder = pair_coders(window_coder)

        def windows(time: int) -> tuple[Any, ...]:
            start = time // 10 * 10
            both = (IntervalWindow(start, start + 20), IntervalWindow(start - 10, start + 10))
            return (GLOBAL,) if is_global else both

        elements = [
            WindowedValue((key, bytes(200 + time)), Timestamp(time), windows(time))
            for key, time in pairs
        ]
        found = groups_of(
            edge, group_coder, as_spark_would(edge, written(edge, coder, elements), chance)
        )
        expected: dict[tuple[bytes, Any], list[int]] = {}
        for key, time in pairs:
            for window in windows(time):
                expected.setdefault((key, window), []).append(time)
        seen = {}
        for key, values, group in found:
            (window,) = group.windows
            assert (key, window) not in seen
            seen[key, window] = sorted(len(value) - 200 for value in values)
            at = {
                TimestampCombiner.END_OF_WINDOW: end_of(window),
                TimestampCombiner.EARLIEST: Timestamp(min(seen[key, window])),
                TimestampCombiner.LATEST: Timestamp(max(seen[key, window])),
            }[combiner]
            assert group.timestamp == at
        assert seen == {where: sorted(times) for where, times in expected.items()}

    def test_dofns_take_what_they_like(self) -> None:
        """Groups that are read in part, twice, at once or never do not disturb the next ones."""
        edge = edge_of(Delivery.GROUP_BY_KEY)
        coder, group_coder = pair_coders(GlobalWindowCoder())
        pairs = [(bytes([65 + n % 5]), str(n).encode() * 30) for n in range(200)]
        batches = written(edge, coder, [WindowedValue(p, Timestamp(5), (GLOBAL,)) for p in pairs])
        ways: list[Callable[[Any], Any]] = [
            lambda values: None,
            lambda values: next(iter(values)),
            lambda values: (sorted(values), sorted(values)),
            lambda values: sum(one == other for one, other in zip(values, values, strict=True)),
            list,
        ]
        expected = dict(sorted_groups(pairs))
        for turn in range(len(ways)):
            left = iter(ways[turn:] + ways[:turn])
            results: list[tuple[bytes, Any, Any]] = []

            def take(values: Any, left: Any = left) -> Any:
                way = next(left)
                return way, way(values)

            for seed in range(3):
                left = iter(ways[turn:] + ways[:turn])
                take.__defaults__ = (left,)
                chance = random.Random(seed)
                results = [
                    (key, *taken)
                    for key, taken, _ in groups_of(
                        edge, group_coder, as_spark_would(edge, batches, chance), take
                    )
                ]
                assert sorted(key for key, _, _ in results) == sorted(expected)
                for key, way, result in results:
                    values = expected[key]
                    match ways.index(way):
                        case 1:
                            assert result in values
                        case 2:
                            assert result == (values, values)
                        case 3:
                            assert result == len(values)
                        case 4:
                            assert sorted(result) == values

    def test_kept_until_the_bundle_ends(self) -> None:
        edge = edge_of(Delivery.GROUP_BY_KEY)
        coder, group_coder = pair_coders(GlobalWindowCoder())
        pairs = [(bytes([65 + n % 5]), str(n).encode() * 30) for n in range(200)]
        batches = written(edge, coder, [WindowedValue(p, Timestamp(5), (GLOBAL,)) for p in pairs])
        kept: list[tuple[bytes, Any]] = []
        iterators: list[tuple[bytes, bytes, Iterator[bytes]]] = []

        def push(group: WindowedValue) -> None:
            key, values = group.value
            if key < b"C":
                kept.append((key, values))
            elif key < b"E":
                iterator = iter(values)
                iterators.append((key, next(iterator), iterator))

        cursor = RowCursor(as_spark_would(edge, batches, random.Random(3)), {7}, pytest.fail)
        logs = ValueLogs()
        reader = GroupReader(edge, group_coder, Pushing(push), logs)
        while cursor.load():
            reader.read(cursor)
        found = [(key, sorted(values)) for key, values in kept]
        found += [(key, sorted([first, *rest])) for key, first, rest in iterators]
        assert sorted(found) == sorted_groups(pair for pair in pairs if pair[0] < b"E")
        logs.close()
        for _, values in kept:
            if isinstance(values, StreamedValues):
                with pytest.raises(GroupClosedError):
                    list(values)


@pytest.mark.parametrize("window", [GLOBAL, IntervalWindow(0, 10)], ids=["global", "window"])
def test_keys_of_all_lengths(window: Any) -> None:
    keys = [bytes(length) for length in (0, 1, LONG_KEY_BYTES, LONG_KEY_BYTES + 1, 300_000)]
    keys += [b"x" * (LONG_KEY_BYTES + 1)]
    pairs = [(key, str(n).encode() * n) for key in keys for n in range(3)]
    is_global = window is GLOBAL
    edge = edge_of(Delivery.GROUP_BY_KEY, is_global=is_global)
    coder, group_coder = pair_coders(GlobalWindowCoder() if is_global else IntervalWindowCoder())
    elements = [WindowedValue(pair, Timestamp(1), (window,)) for pair in pairs]
    batches = written(edge, coder, elements, limit=50_000)
    # What is sorted by, and repeated in each row, stays short.
    assert max(len(key) for batch in batches for key in batch["key"].to_pylist()) <= (
        LONG_KEY_BYTES + 100
    )
    for seed in range(5):
        chance = random.Random(seed)
        found = groups_of(edge, group_coder, as_spark_would(edge, batches, chance))
        assert sorted((key, sorted(values)) for key, values, _ in found) == sorted_groups(pairs)


def test_a_key_of_50_mb() -> None:
    key = bytes(50 << 20)
    edge = edge_of(Delivery.GROUP_BY_KEY)
    coder, group_coder = pair_coders(GlobalWindowCoder())
    elements = [WindowedValue((key, value), Timestamp(1), (GLOBAL,)) for value in (b"1", b"2")]
    batches = written(edge, coder, elements, limit=1 << 20)
    assert max(batch.nbytes for batch in batches) < 6 << 20
    ((found, values, _),) = groups_of(
        edge, group_coder, as_spark_would(edge, batches, random.Random(1))
    )
    assert found == key
    assert sorted(values) == [b"1", b"2"]


def test_keys_that_are_none() -> None:
    pairs = TupleCoder([FastPrimitivesCoder(), FastPrimitivesCoder()])
    edge = edge_of(Delivery.GROUP_BY_KEY)
    coder, group_coder = pair_coders(GlobalWindowCoder(), pairs)
    elements = [(None, None), (None, 1), ("", None), (0, 2)]
    batches = written(edge, coder, [WindowedValue(e, Timestamp(1), (GLOBAL,)) for e in elements])
    found = groups_of(edge, group_coder, as_spark_would(edge, batches, random.Random(1)))
    by_key = {repr(key): sorted(map(repr, values)) for key, values, _ in found}
    assert by_key == {"None": ["1", "None"], "''": ["None"], "0": ["2"]}


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


def keys_of(found: Iterable[WindowedValue]) -> Iterator[list[WindowedValue]]:
    """Elements between the ends of two keys."""
    one: list[WindowedValue] = []
    for each in found:
        if each.value == KEY_ENDS.value:
            yield one
            one = []
        else:
            one.append(each)
    assert not one, "a key that does not end"


@pytest.mark.usefixtures("hashes", "memory")
@pytest.mark.parametrize("is_time_sorted", [True, False], ids=["sorted", "in any order"])
@pytest.mark.parametrize("is_global", [True, False], ids=["global", "windows"])
@given(
    elements=st.lists(st.tuples(KEYS, element_strategy()), max_size=30),
    chance=st.randoms(use_true_random=False),
)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_keyed_elements_come_key_by_key(
    is_time_sorted: bool,
    is_global: bool,
    elements: list[tuple[bytes, WindowedValue]],
    chance: random.Random,
) -> None:
    pairs = [
        WindowedValue(
            (key, each.value),
            each.timestamp,
            (GLOBAL,) if is_global else each.windows,
            each.pane_info,
        )
        for key, each in elements
    ]
    edge = edge_of(
        Delivery.BY_KEY, is_global=is_global, is_keyed=True, is_time_sorted=is_time_sorted
    )
    coder = WindowedValueCoder(PAIRS, GlobalWindowCoder() if is_global else IntervalWindowCoder())
    found: list[WindowedValue] = []
    batches = as_spark_would(edge, written(edge, coder, pairs), chance)
    read(edge, coder, batches, found.append)
    keys = list(keys_of(found))
    assert sorted(each[0].value[0] for each in keys) == sorted({key for key, _ in elements})
    for some in keys:
        assert len({each.value[0] for each in some}) == 1
        if is_time_sorted:
            times = [each.timestamp for each in some]
            assert times == sorted(times)
    assert shown(each for some in keys for each in some) == shown(pairs)


@pytest.mark.usefixtures("hashes", "memory")
def test_groups_for_a_keyed_step_end_one_by_one() -> None:
    edge = edge_of(Delivery.GROUP_BY_KEY, is_keyed=True)
    coder, group_coder = pair_coders(GlobalWindowCoder())
    pairs = [(bytes([65 + n % 5]), str(n).encode() * 30) for n in range(40)]
    batches = written(edge, coder, [WindowedValue(p, Timestamp(5), (GLOBAL,)) for p in pairs])
    found: list[WindowedValue] = []

    def push(group: WindowedValue) -> None:
        if group.value != KEY_ENDS.value:
            key, values = group.value
            group = group.with_value((key, sorted(values)))
        found.append(group)

    read(edge, group_coder, as_spark_would(edge, batches, random.Random(3)), push)
    keys = [[group.value for group in some] for some in keys_of(found)]
    assert sorted(keys) == [[group] for group in sorted_groups(pairs)]


def shown(values: Iterable[WindowedValue]) -> Counter[Any]:
    return Counter(
        (each.value, each.timestamp, frozenset(each.windows), each.pane_info) for each in values
    )


@pytest.mark.parametrize("delivery", [Delivery.REDISTRIBUTE, Delivery.POINTWISE])
@pytest.mark.parametrize("is_global", [True, False], ids=["global", "windows"])
@given(elements=st.lists(element_strategy(), max_size=30), chance=st.randoms(use_true_random=False))
def test_elements_keep_all_they_have(
    delivery: Delivery, is_global: bool, elements: list[WindowedValue], chance: random.Random
) -> None:
    if is_global:
        elements = [
            WindowedValue(each.value, each.timestamp, (GLOBAL,), each.pane_info)
            for each in elements
        ]
    edge = edge_of(delivery, is_global=is_global)
    coder = WindowedValueCoder(
        BytesCoder(), GlobalWindowCoder() if is_global else IntervalWindowCoder()
    )
    found: list[WindowedValue] = []
    batches = as_spark_would(edge, written(edge, coder, elements), chance)
    read(edge, coder, batches, found.append)
    assert shown(found) == shown(elements)


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize(("count", "loads"), [(1, [0, 0, 0, 1]), (6, [1, 1, 2, 2]), (8, [2] * 4)])
def test_elements_are_spread_evenly(first: int, count: int, loads: list[int]) -> None:
    edge = edge_of(Delivery.REDISTRIBUTE)
    coder = WindowedValueCoder(VarIntCoder(), GlobalWindowCoder())
    elements = [WindowedValue(n, MIN_TIMESTAMP, (GLOBAL,)) for n in range(count)]
    places = partitions_of(written(edge, coder, elements, first=first), 4)
    assert sorted(np.bincount(places, minlength=4)) == loads
    assert places[0] == first


def partitions_of(batches: list[pa.RecordBatch], partitions: int) -> list[int]:
    routes = pa.Table.from_batches(batches)["route"].to_numpy()
    return [int(place) for place in routing.partitions_of_routes(routes, partitions)]


def test_restrictions_are_spread_by_size() -> None:
    edge = edge_of(Delivery.REDISTRIBUTE_BY_SIZE)
    coder = WindowedValueCoder(TupleCoder([StrUtf8Coder(), FloatCoder()]), GlobalWindowCoder())
    sizes = [90.0, 10.0, 20.0, 30.0, 0.0, 30.0, 50.0, 40.0, 90.0]
    elements = [
        WindowedValue((str(n), size), MIN_TIMESTAMP, (GLOBAL,)) for n, size in enumerate(sizes)
    ]
    batches = written(edge, coder, elements)
    places = partitions_of(batches, 4)
    loads = np.bincount(places, weights=sizes, minlength=4)
    assert sum(loads) == sum(sizes)
    assert max(loads) == min(loads) == 90
    found: list[WindowedValue] = []
    read(edge, coder, iter(batches), found.append)
    assert [each.value for each in found] == [each.value for each in elements]


def restrictions(sizes: Iterable[float]) -> list[WindowedValue]:
    return [WindowedValue((str(n), size), MIN_TIMESTAMP, (GLOBAL,)) for n, size in enumerate(sizes)]


SIZED = WindowedValueCoder(TupleCoder([StrUtf8Coder(), FloatCoder()]), GlobalWindowCoder())


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("count", [1, 3, 4])
def test_few_restrictions_are_on_different_partitions(first: int, count: int) -> None:
    edge = edge_of(Delivery.REDISTRIBUTE_BY_SIZE)
    batches = written(edge, SIZED, restrictions([0.0, 5e9, 5.0, 1.0][:count]), first=first)
    assert len(set(partitions_of(batches, 4))) == count


@pytest.mark.parametrize("partitions", [4, 7, 40, 1, 3])
def test_elements_are_spread_evenly_over_other_partitions_than_their_task_knows_of(
    partitions: int,
) -> None:
    """A later segment may derive more partitions from bytes than that which wrote the rows."""
    edge = edge_of(Delivery.REDISTRIBUTE)
    coder = WindowedValueCoder(VarIntCoder(), GlobalWindowCoder())
    elements = [WindowedValue(n, MIN_TIMESTAMP, (GLOBAL,)) for n in range(1_000)]
    loads = np.zeros(partitions, np.int64)
    for task in range(4):
        places = partitions_of(written(edge, coder, elements, first=task), partitions)
        of_task = np.bincount(places, minlength=partitions)
        assert max(of_task) - min(of_task) <= 1
        loads += of_task
    assert max(loads) - min(loads) <= 4


@pytest.mark.parametrize("partitions", [4, 7, 40])
@given(
    sizes=st.lists(st.floats(1.0, 1e6), min_size=400, max_size=800),
    is_skewed=st.booleans(),
    first=st.integers(0, 100),
)
@settings(max_examples=20, deadline=None)
def test_restrictions_are_spread_by_size_over_other_partitions_than_their_task_knows_of(
    partitions: int, sizes: list[float], is_skewed: bool, first: int
) -> None:
    if is_skewed:
        sizes = [size if n % 4 else 1.0 for n, size in enumerate(sizes)]
    edge = edge_of(Delivery.REDISTRIBUTE_BY_SIZE)
    batches = written(edge, SIZED, restrictions(sizes), first=first)
    loads = np.bincount(partitions_of(batches, partitions), weights=sizes, minlength=partitions)
    assert max(loads) <= sum(sizes) / partitions + 2 * max(sizes)
    assert max(loads) <= 2 * sum(sizes) / partitions + max(sizes)


@pytest.mark.parametrize(
    ("delivery", "coder", "element", "words"),
    [
        (Delivery.GROUP_BY_KEY, PAIRS, ("text", b""), "key or value"),
        (Delivery.GROUP_BY_KEY, PAIRS, (b"", 5), "key or value"),
        (Delivery.BY_KEY, PAIRS, ("text", b""), "key or value"),
        (Delivery.BY_KEY, PAIRS, (b"", 5), "key or value"),
        (Delivery.REDISTRIBUTE, BytesCoder(), "text", "value"),
        (Delivery.SIDE_INPUT, BytesCoder(), "text", "value"),
        (Delivery.REDISTRIBUTE_BY_SIZE, PAIRS, (b"", 5.0), "restriction"),
    ],
)
def test_an_element_that_does_not_encode(
    delivery: Delivery, coder: Any, element: Any, words: str
) -> None:
    edge = edge_of(delivery, access_pattern=urns.SIDE_INPUT_ITERABLE)
    windowed = WindowedValueCoder(coder, GlobalWindowCoder())
    with pytest.raises(EncodingError) as caught:
        written(edge, windowed, [WindowedValue(element, MIN_TIMESTAMP, (GLOBAL,))])
    assert f"the {words} of an element on its way to Outer/step cannot be encoded" in str(
        caught.value
    )
    assert repr(element) in str(caught.value)


class Unprintable:
    def __repr__(self) -> str:
        raise KeyError("not why it does not encode")


def test_an_element_that_neither_encodes_nor_can_be_shown() -> None:
    coder = WindowedValueCoder(BytesCoder(), GlobalWindowCoder())
    with pytest.raises(EncodingError, match=r"Unprintable <a Unprintable whose __repr__ raises>: "):
        written(
            edge_of(Delivery.REDISTRIBUTE),
            coder,
            [WindowedValue(Unprintable(), MIN_TIMESTAMP, (GLOBAL,))],
        )


@pytest.mark.parametrize("delivery", [Delivery.GROUP_BY_KEY, Delivery.REDISTRIBUTE])
def test_an_element_over_the_limit(delivery: Delivery) -> None:
    coder = WindowedValueCoder(PAIRS, GlobalWindowCoder())
    element = WindowedValue((b"k", bytes(1000)), MIN_TIMESTAMP, (GLOBAL,))
    written(edge_of(delivery), coder, [element], largest=1010)
    with pytest.raises(EncodingError, match=r"over the limit of 990 bytes .* cross to Outer/step"):
        written(edge_of(delivery), coder, [element], largest=990)


@given(st.binary(), st.binary(), st.binary(), st.binary())
def test_joined_keys(key: bytes, window: bytes, other_key: bytes, other_window: bytes) -> None:
    assert split_key(join_key(key, window)) == (key, window)
    are_equal = join_key(key, window) == join_key(other_key, other_window)
    assert are_equal == ((key, window) == (other_key, other_window))


def test_rows_of_others_are_passed_on() -> None:
    edge = edge_of(Delivery.REDISTRIBUTE)
    routes = np.zeros(2, np.int64)
    mine = schema.batch_of(int(DEST), routes, None, None, [b"a", b"b"])
    others = schema.batch_of(9 | schema.WINDOWED, routes, None, None, [b"c", b"d"])
    mixed = pa.Table.from_batches([mine, others, mine]).combine_chunks().to_batches()
    passed: list[pa.RecordBatch] = []
    cursor = RowCursor(iter(mixed), {int(DEST)}, passed.append)
    found: list[Any] = []
    coder = WindowedValueCoder(BytesCoder(), GlobalWindowCoder())
    reader = ElementReader(edge, coder, Pushing(found.append))
    while cursor.load():
        reader.read(cursor)
    assert [each.value for each in found] == [b"a", b"b"] * 2
    assert [value for batch in passed for value in batch["value"].to_pylist()] == [b"c", b"d"]


def sessions(push: Callable[[WindowedValue], None], logs: ValueLogs) -> GroupsInPanes:
    windowing = Windowing(Sessions(5)).to_runner_api(PipelineContext())
    edge = dataclasses.replace(
        edge_of(Delivery.GROUP_BY_KEY, is_global=False),
        coded_windowing=windowing.SerializeToString(),
    )
    _, group_coder = pair_coders(IntervalWindowCoder())
    return GroupsInPanes(edge, group_coder, Pushing(push), logs)


def test_a_large_session_is_kept_with_its_element() -> None:
    """Until the bundle ends: Beam's BatchElements keeps elements so long."""
    coder = WindowedValueCoder(BytesCoder(), IntervalWindowCoder())
    values = [bytes([n]) * (MEMORY_LIMIT_BYTES // 100) for n in range(200)]
    coded = [coder.encode(WindowedValue(each, 3, (IntervalWindow(0, 5),))) for each in values]
    kept: list[tuple[bytes, Any]] = []
    logs = ValueLogs()
    operator = sessions(lambda group: kept.append(group.value), logs)
    operator.stream(join_key(b"key", b""), 0, logs.new(), iter(coded))
    ((_, streamed),) = kept
    assert isinstance(streamed, StreamedValues)
    assert list(streamed) == values
    logs.close()
    with pytest.raises(GroupClosedError):
        list(streamed)


class UnwantedError(Exception):
    """What a task is expected that nobody wants any more."""

    _tagged_with_step = True


@pytest.mark.parametrize(
    ("error", "expected"),
    [(UnwantedError(), UnwantedError), (ValueError("not these"), BundleFailedError)],
    ids=["of the task", "of anything else"],
)
def test_merging_a_large_key_passes_on_what_no_step_has_raised(
    error: Exception, expected: type[Exception]
) -> None:
    logs = ValueLogs()
    operator = sessions(pytest.fail, logs)

    def fail(_: bytes) -> bytes:
        raise error

    with pytest.raises(expected) as raised:
        operator.stream(b"key", 0, logs.new(), map(fail, [b""]))
    if isinstance(raised.value, BundleFailedError):
        assert raised.value.step == "Outer/step"
