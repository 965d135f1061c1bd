"""Input that waits for its commit, over records in memory."""

from collections.abc import Iterable
from typing import Any

import pytest
from apache_beam.coders import StrUtf8Coder, TupleCoder, VarIntCoder, WindowedValueCoder
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.transforms.window import IntervalWindow
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.harness import stable
from beam_spark_runner.harness.stable import StableElements, copy_stable
from beam_spark_runner.semantics.lateness import LateElements
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.state.store_keys import hash_of
from tests.unit.state.sorted_records import SortedRecords, count_values

CODER = WindowedValueCoder(StrUtf8Coder(), IntervalWindowCoder())
END = "end"


class Seen:
    """Gets what is pushed. See ``BundleInput``."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def push(self, values: list[Any], origins: list[WindowedValue]) -> None:
        assert len(values) == len(origins)
        self.events += values

    def flush(self) -> None: ...

    def advance_key(self) -> None:
        self.events.append(END)


class Epochs:
    """One epoch after another over the same records."""

    def __init__(self) -> None:
        self.records = SortedRecords()
        self.store = StoredState(self.records, 1, count_values, page_bytes=64)
        self.late = LateElements()

    def epoch(self, *keys: list[WindowedValue], expired: int = -1) -> tuple[list[Any], bool]:
        """Return what is processed in an epoch, and whether something is stored for the next."""
        elements = StableElements(
            self.store,
            CODER,
            is_expired=lambda window: window.start == expired,
            late=self.late,
            is_keyed=False,
        )
        seen = Seen()
        elements.release(seen)
        for key in keys:
            for each in key:
                elements.push([each.value], [each])
            elements.advance_key()
        return seen.events, elements.save()


def element(value: str, *starts: int, at: int = 7) -> WindowedValue:
    windows = tuple(IntervalWindow(start, start + 10) for start in starts or (0,))
    return WindowedValue(value, Timestamp(at), windows)


def many(prefix: str, count: int) -> list[WindowedValue]:
    return [element(f"{prefix}{number}") for number in range(count)]


def test_what_comes_is_processed_in_the_next_epoch() -> None:
    epochs = Epochs()
    assert epochs.epoch([element("a"), element("b")], [element("c")]) == ([], True)
    assert epochs.epoch([element("d")]) == (["a", "b", END, "c", END], True)
    assert epochs.epoch() == (["d", END], False)
    assert not epochs.records.values
    assert epochs.epoch() == ([], False)


@pytest.mark.parametrize("piece_bytes", [1, 30, 1000])
def test_keys_of_any_size_stay_apart(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    monkeypatch.setattr(stable, "_PIECE_BYTES", piece_bytes)
    epochs = Epochs()
    keys = [many("a", 300), many("b", 1), many("c", 17)]
    epochs.epoch(*keys)
    expected = [each for key in keys for each in [*(one.value for one in key), END]]
    assert epochs.epoch() == (expected, False)
    assert not epochs.records.values


def test_without_keys_there_is_no_end() -> None:
    epochs = Epochs()
    elements = StableElements(
        epochs.store, CODER, is_expired=lambda window: False, late=epochs.late, is_keyed=False
    )
    elements.push(["a"], [element("a")])
    assert elements.save()
    assert epochs.epoch()[0] == ["a"]


def test_another_attempt_sees_the_same_in_the_same_order() -> None:
    epochs = Epochs()
    epochs.epoch(many("a", 200), many("b", 3))
    stored = dict(epochs.records.values)
    first, _ = epochs.epoch([element("x")])
    epochs.records.values, epochs.records._order = dict(stored), sorted(stored)
    second, _ = epochs.epoch([element("y"), element("z")])
    assert first == second


def test_the_least_timestamp_holds_the_watermark_and_the_stage_is_due() -> None:
    epochs = Epochs()
    epochs.epoch([element("a", at=5), element("b", at=3), element("c", at=8)])
    assert epochs.store.least_hold() == 3_000_000
    assert epochs.store.next_due() == (MIN_US, None)
    epochs.epoch([element("d", at=9)])
    assert epochs.store.least_hold() == 9_000_000
    epochs.epoch()
    assert epochs.store.least_hold() is None
    assert epochs.store.next_due() == (None, None)


def test_what_comes_too_late_is_dropped_and_what_is_stored_is_not() -> None:
    epochs = Epochs()
    epochs.epoch([element("a")])
    late = [element("late", 0, 10)], [element("later")]
    assert epochs.epoch(*late, expired=0) == (["a", END], True)
    assert epochs.late.dropped == 2
    assert epochs.epoch([element("later")], expired=0) == (["late", END], False)
    assert epochs.late.dropped == 3


PAIRS = WindowedValueCoder(TupleCoder((StrUtf8Coder(), VarIntCoder())), IntervalWindowCoder())


def pair(key: str, number: int) -> WindowedValue:
    return WindowedValue((key, number), Timestamp(number), (IntervalWindow(0, 100),))


def store_pairs(epochs: Epochs, keys: str, *, is_keyed: bool) -> None:
    """Store pairs of numbers 5 to 104 for each key."""
    elements = StableElements(
        epochs.store, PAIRS, is_expired=lambda _: False, late=epochs.late, is_keyed=is_keyed
    )
    for key in keys:
        for number in range(5, 105):
            elements.push([(key, number)], [pair(key, number)])
        elements.advance_key()
    elements.save()


@pytest.mark.parametrize("piece_bytes", [30, 1000])
def test_keys_may_go_elsewhere(monkeypatch: pytest.MonkeyPatch, piece_bytes: int) -> None:
    """Two shards become two others; one of which has nothing of the first."""
    monkeypatch.setattr(stable, "_PIECE_BYTES", piece_bytes)
    old, new = (Epochs(), Epochs()), (Epochs(), Epochs())
    store_pairs(old[0], "ab", is_keyed=True)
    store_pairs(old[1], "cd", is_keyed=True)
    hashes = {key: hash_of(StrUtf8Coder().encode_nested(key)) for key in "abcd"}
    for target, keys in zip(new, ("b", "adc"), strict=True):
        for source in old:
            going = {hashes[key] for key in keys}
            copy_stable(source.store, target.store, going.__contains__)
        assert target.store.least_hold() == 5_000_000
        seen = Seen()
        StableElements(
            target.store, PAIRS, is_expired=lambda _: False, late=target.late, is_keyed=True
        ).release(seen)
        expected = [[(key, number) for number in range(5, 105)] for key in sorted(keys)]
        assert seen.events == [each for key in expected for each in (*key, END)]
        assert not target.records.values


def test_without_keys_nothing_says_where_elements_belong() -> None:
    old, new = Epochs(), Epochs()
    store_pairs(old, "a", is_keyed=False)
    copy_stable(old.store, new.store, lambda hashed: hashed is not None)
    assert not new.records.values
    copy_stable(old.store, new.store, lambda hashed: hashed is None)
    assert new.store.least_hold() == 5_000_000


def test_the_hold_is_at_most_the_end_of_the_window() -> None:
    """A grouping downstream would drop what comes after it."""
    epochs, window = Epochs(), IntervalWindow(0, 10)
    epochs.epoch([WindowedValue("a", Timestamp(25), (window,))])
    assert epochs.store.least_hold() == window.max_timestamp().micros


@pytest.mark.parametrize("ahead", [1, 2, 100])
@pytest.mark.parametrize("piece_bytes", [20, 1 << 20])
def test_what_the_next_keys_have_stored_is_asked_for_together(
    monkeypatch: pytest.MonkeyPatch, ahead: int, piece_bytes: int
) -> None:
    monkeypatch.setattr(stable, "_KEYS_AHEAD", ahead)
    monkeypatch.setattr(stable, "_PIECE_BYTES", piece_bytes)
    key_coder = StrUtf8Coder()
    coder = WindowedValueCoder(TupleCoder((key_coder, VarIntCoder())), IntervalWindowCoder())
    store, seen = StoredState(SortedRecords(), 1, count_values), Seen()
    elements = StableElements(
        store, coder, is_expired=lambda window: False, late=LateElements(), is_keyed=True
    )
    keys = [f"key {number}" for number in range(5)]
    for key in keys:
        for number in range(3):
            elements.push([(key, number)], [element("").with_value((key, number))])
        elements.advance_key()
    assert elements.save()
    coded = [key_coder.encode_nested(key) for key in keys]

    def ask(asked: Iterable[bytes]) -> None:
        seen.events.append({*asked})

    elements.release(seen, ask)
    asked = [each for each in seen.events if isinstance(each, set)]
    assert set().union(*asked) == {*coded}
    assert len(asked) == 1 or ahead < 100
    known = set[bytes]()
    for event in seen.events:
        if isinstance(event, set):
            known |= event
        elif event != END:
            assert key_coder.encode_nested(event[0]) in known
    assert [each for each in seen.events if isinstance(each, tuple)] == [
        (key, number) for key in keys for number in range(3)
    ]
