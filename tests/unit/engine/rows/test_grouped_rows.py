"""Groups of values, written as rows and read again."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apache_beam.coders import (
    BytesCoder,
    FastPrimitivesCoder,
    TupleCoder,
    WindowedValueCoder,
)
from apache_beam.coders.coders import GlobalWindowCoder, IntervalWindowCoder
from apache_beam.transforms.window import IntervalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import (
    PaneInfo,
    PaneInfoTiming,
    WindowedValue,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_spark_runner.core import urns
from beam_spark_runner.core.time import whole_milliseconds
from beam_spark_runner.engine.rows.cursor import RowCursor
from beam_spark_runner.engine.rows.group_reader import GroupReader
from beam_spark_runner.engine.rows.writing import FLUSH_BYTES, LONG_KEY_BYTES
from beam_spark_runner.graph.model import TimestampCombiner
from beam_spark_runner.harness.values.spilled_group import (
    GroupClosedError,
    StreamedValues,
    ValueLogs,
)
from beam_spark_runner.plan.model import Delivery
from tests.examples import examples
from tests.unit.engine.rows.written_rows import (
    GLOBAL,
    KEYS,
    LIMIT,
    Pushing,
    as_spark_would,
    edge_of,
    groups_of,
    pair_coders,
    sorted_groups,
    written,
)


def end_of(window: Any) -> Timestamp:
    """Beam's wire carries milliseconds."""
    return Timestamp(micros=whole_milliseconds(window.max_timestamp().micros))


PAIR_LISTS = st.lists(st.tuples(KEYS, st.binary(max_size=LIMIT * 3)), max_size=40)


@pytest.mark.usefixtures("hashes", "memory")
class TestGroups:
    """Each claim with and without colliding hashes, in little and in much memory."""

    @given(PAIR_LISTS, st.randoms(use_true_random=False))
    @settings(
        max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
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
    @settings(
        max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
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
def test_keys_of_all_lengths_are_grouped_by_short_columns(window: Any) -> None:
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


def test_a_key_of_50_mb_travels_in_small_batches() -> None:
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


def test_keys_and_values_that_are_none_are_grouped() -> None:
    pairs = TupleCoder([FastPrimitivesCoder(), FastPrimitivesCoder()])
    edge = edge_of(Delivery.GROUP_BY_KEY)
    coder, group_coder = pair_coders(GlobalWindowCoder(), pairs)
    elements = [(None, None), (None, 1), ("", None), (0, 2)]
    batches = written(edge, coder, [WindowedValue(e, Timestamp(1), (GLOBAL,)) for e in elements])
    found = groups_of(edge, group_coder, as_spark_would(edge, batches, random.Random(1)))
    by_key = {repr(key): sorted(map(repr, values)) for key, values, _ in found}
    assert by_key == {"None": ["1", "None"], "''": ["None"], "0": ["2"]}


@pytest.mark.parametrize(
    ("delivery", "pattern"),
    [(Delivery.GROUP_BY_KEY, ""), (Delivery.SIDE_INPUT, urns.SIDE_INPUT_MULTIMAP)],
)
def test_an_element_in_very_many_windows_fills_several_batches(
    delivery: Delivery, pattern: str
) -> None:
    """One batch of them could be larger than Arrow allows."""
    windows = tuple(IntervalWindow(n, n + 3_000) for n in range(3_000))
    edge = edge_of(delivery, is_global=False, access_pattern=pattern)
    pair = TupleCoder((BytesCoder(), BytesCoder()))
    coder = WindowedValueCoder(pair, IntervalWindowCoder())
    element = WindowedValue((b"k", b"v" * 10_000), Timestamp(0), windows)
    batches = written(edge, coder, [element], limit=1 << 18)
    assert sum(batch.num_rows for batch in batches) == len(windows)
    assert max(batch.nbytes for batch in batches) < 2 * FLUSH_BYTES
