"""GroupByKey in epochs, over records in memory."""

from collections.abc import Iterable, Iterator, Sequence

import pytest
from apache_beam.coders import (
    BytesCoder,
    StrUtf8Coder,
    WindowedValueCoder,
)
from apache_beam.coders.coders import SingletonCoder
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterProcessingTime,
    AfterWatermark,
    DefaultTrigger,
    Repeatedly,
)
from apache_beam.transforms.window import FixedWindows, IntervalWindow, Sessions, WindowFn
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.values.spilled_group import StreamedValues
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.timers import Instant
from tests.unit.harness.grouping.epochs import SECOND_US, Epochs, Panes


def _sorted(panes: Iterable[Iterable[bytes]]) -> list[list[bytes]]:
    return [sorted(pane) for pane in panes]


def test_a_window_gathers_the_values_of_all_epochs() -> None:
    epochs = Epochs(Windowing(FixedWindows(60)))
    assert epochs.run((b"a", 1), (b"b", 2)) == []
    assert epochs.run((b"c", 3), (b"z", 61)) == []
    assert _sorted(epochs.run(watermark=60)) == [[b"a", b"b", b"c"]]
    assert _sorted(epochs.run(watermark=120)) == [[b"z"]]
    assert not epochs.records.values


def test_what_comes_too_late_is_dropped_and_counted() -> None:
    epochs = Epochs(Windowing(FixedWindows(10)))
    assert epochs.run((b"a", 1), (b"b", 12), watermark=10) == [[b"a"]]
    assert epochs.run((b"late", 2), (b"c", 13), (b"late", 9), watermark=20) == [[b"b", b"c"]]
    assert epochs.late.dropped == 2


def test_an_epoch_writes_what_has_come_in_it() -> None:
    epochs = Epochs(Windowing(FixedWindows(60)))
    written: list[int] = []
    for _ in range(50):
        epochs.records.puts.clear()
        epochs.run((b"x" * 100, 1))
        written.append(sum(epochs.records.puts))
    assert max(written[26:]) < max(written[1:26]) + 20  # it does not grow with what is there
    (values,) = epochs.run(watermark=60)
    assert list(values) == [b"x" * 100] * 50


def test_a_few_small_values_are_stored_with_their_window() -> None:
    epochs = Epochs(Windowing(FixedWindows(60)))
    epochs.run((b"x" * 4, 1))
    of_window = len(epochs.records.values)
    for _ in range(37):
        epochs.records.puts.clear()
        epochs.run((b"x" * 4, 1))
        assert len(epochs.records.puts) == 1
    assert len(epochs.records.values) == of_window
    epochs.run(*[(b"x" * 4, 1)] * 62)
    assert len(epochs.records.values) > of_window
    (values,) = epochs.run((b"y", 1), watermark=60)
    assert list(values) == [b"x" * 4] * 100 + [b"y"]
    assert not epochs.records.values


def test_the_timer_of_an_open_window_is_written_once() -> None:
    """After that: the value, how many there are, and what is known of the window."""
    epochs = Epochs(Windowing(FixedWindows(60)))
    epochs.run((b"a", 1))
    for watermark in (10, 20):
        epochs.records.puts.clear()
        epochs.run((b"a", 30), watermark=watermark)
        assert len(epochs.records.puts) == 1  # of the window; its values are part of it
    assert _sorted(epochs.run((b"b", 40), watermark=60)) == [[b"a", b"a", b"a", b"b"]]
    assert not epochs.records.values


def test_a_timer_of_processing_time_is_written_when_it_changes() -> None:
    trigger = AfterWatermark(early=AfterProcessingTime(5))
    epochs = Epochs(Windowing(FixedWindows(60), trigger, AccumulationMode.ACCUMULATING))
    assert epochs.run((b"a", 1)) == []
    assert epochs.run((b"b", 1), clock=3) == []
    assert _sorted(epochs.run(clock=5)) == [[b"a", b"b"]]
    assert epochs.run((b"c", 1), clock=6) == []
    assert _sorted(epochs.run(clock=11)) == [[b"a", b"b", b"c"]]
    epochs.run(watermark=60, clock=12)
    assert not epochs.records.values


def test_panes_of_several_keys_go_together() -> None:
    panes = Panes()
    groups = Epochs(Windowing(FixedWindows(60))).groups(panes, Instant(60 * SECOND_US, 0))
    window = (IntervalWindow(0, 60),)
    coder = WindowedValueCoder(BytesCoder(), FixedWindows(60).get_window_coder())
    for number in range(3):
        key = StrUtf8Coder().get_impl().encode_nested(f"k{number}")
        groups.group(key, [coder.encode(WindowedValue(b"x" * 400_000, 1, window))], 0)
        # Until they are a megabyte.
        assert len(panes.seen) == (3 if number == 2 else 0)


@pytest.mark.parametrize("mode", [AccumulationMode.ACCUMULATING, AccumulationMode.DISCARDING])
def test_panes_have_all_values_or_new_ones(mode: int) -> None:
    epochs = Epochs(Windowing(FixedWindows(60), Repeatedly(AfterCount(2)), mode))
    accumulates = mode == AccumulationMode.ACCUMULATING
    assert epochs.run((b"a", 1)) == []
    assert _sorted(epochs.run((b"b", 2))) == [[b"a", b"b"]]
    assert epochs.run((b"c", 3)) == []
    first = [b"a", b"b"] if accumulates else []
    assert _sorted(epochs.run((b"d", 4))) == [[*first, b"c", b"d"]]
    assert epochs.run(watermark=60) == []
    assert not epochs.records.values


def test_sessions_that_merge_keep_their_values() -> None:
    epochs = Epochs(Windowing(Sessions(10)))
    assert epochs.run((b"a", 1), (b"c", 15)) == []
    assert epochs.run((b"d", 18)) == []
    assert epochs.run((b"b", 8)) == []  # joins both
    assert epochs.run((b"e", 50)) == []
    assert _sorted(epochs.run(watermark=28)) == [[b"a", b"b", b"c", b"d"]]
    assert _sorted(epochs.run(watermark=60)) == [[b"e"]]
    assert not epochs.records.values


def test_values_without_bytes_count() -> None:
    epochs = Epochs(Windowing(FixedWindows(60)), SingletonCoder(None))
    epochs.run((None, 1), (None, 2))
    epochs.run((None, 1))
    (values,) = epochs.run((None, 3), watermark=60)
    assert list(values) == [None] * 4


def test_a_large_pane_is_streamed() -> None:
    epochs = Epochs(Windowing(FixedWindows(60)), page_bytes=256)
    expected = [b"%d" % n * 20 for n in range(100)]
    for value in expected[:-1]:
        epochs.run((value, 1))
    (values,) = epochs.run((expected[-1], 1), watermark=60)
    assert isinstance(values, StreamedValues)
    assert not epochs.records.values
    assert sorted(values) == sorted(values) == sorted(expected)
    epochs.logs.close()


def test_a_pane_that_nobody_keeps_leaves_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = Epochs(Windowing(FixedWindows(60), DefaultTrigger()), page_bytes=64)
    taken: list[int] = []
    monkeypatch.setattr(
        Panes, "push", lambda _, values, origins: taken.extend(len(list(v)) for _, v in values)
    )
    for _ in range(20):
        epochs.run((b"x" * 30, 1))
    epochs.run(watermark=60)
    assert taken == [20]
    assert not epochs.records.values


class Joining:
    """Merges accumulators that are strings of bytes; counts how many it has got."""

    def __init__(self) -> None:
        self.merged: list[int] = []

    def __call__(self, groups: Sequence[WindowedValue]) -> list[bytes]:
        self.merged += [len(group.value[1]) for group in groups]
        return [b"".join(group.value[1]) for group in groups]


@pytest.mark.parametrize("mode", [AccumulationMode.ACCUMULATING, AccumulationMode.DISCARDING])
def test_many_accumulators_are_merged(mode: int) -> None:
    joining = Joining()
    epochs = Epochs(
        Windowing(FixedWindows(60), DefaultTrigger(), mode), merge=joining, page_bytes=100
    )
    most_records = 0
    for n in range(200):
        assert epochs.run((b"%03d" % n, 1), (b"x", 61)) == []
        most_records = max(most_records, len(epochs.records.values))
    assert most_records < 150
    assert max(joining.merged) < 100
    (values,) = epochs.run(watermark=60)
    assert b"".join(values) == b"".join(b"%03d" % n for n in range(200))
    (values,) = epochs.run(watermark=120)
    assert b"".join(values) == b"x" * 200
    assert not epochs.records.values


def test_accumulators_that_do_not_shrink_are_merged_less_and_less() -> None:
    joining = Joining()
    epochs = Epochs(Windowing(FixedWindows(60)), merge=joining)
    for _ in range(1000):
        epochs.run((b"x" * 100, 1))
    assert 3 <= len(joining.merged) <= 6
    (values,) = epochs.run(watermark=60)
    assert b"".join(values) == b"x" * 100_000


def test_a_key_that_fires_again_has_what_was_merged() -> None:
    epochs = Epochs(
        Windowing(FixedWindows(60), Repeatedly(AfterCount(70)), AccumulationMode.ACCUMULATING),
        merge=Joining(),
    )
    assert epochs.run(*[(b"%02d" % n, 1) for n in range(69)]) == []
    (values,) = epochs.run((b"69", 1))
    assert b"".join(values) == b"".join(b"%02d" % n for n in range(70))
    assert epochs.run((b"z", 1)) == []
    (values,) = epochs.run(watermark=60)
    assert b"".join(values) == b"".join(b"%02d" % n for n in range(70)) + b"z"


class Budget:
    """Time that passes with each pane."""

    def __init__(self, panes: int) -> None:
        self._without, self._calls = panes, 0
        self.interruption = Interruption(self._spent_us, budget_us=1, batch=1)

    def _spent_us(self) -> int:
        self._calls += 1
        return max(0, self._calls - self._without)


@pytest.mark.parametrize("window_fn", [FixedWindows(10), Sessions(5)], ids=["fixed", "sessions"])
def test_very_many_windows_of_one_key_fire_in_several_epochs(window_fn: WindowFn) -> None:
    count = 50
    epochs = Epochs(Windowing(window_fn))
    epochs.run(*[(b"%02d" % n, 10 * n) for n in range(count)])
    fired: list[bytes] = []
    interrupted = 0
    while len(fired) < count:
        holds_us = epochs.hold_us
        assert holds_us is not None
        assert holds_us < (10 * len(fired) + 10) * SECOND_US  # of the first that has not fired
        budget = Budget(7)
        panes = epochs.run(watermark=10 * count + 10, interruption=budget.interruption)
        assert 1 <= len(panes) <= 8
        fired += [value for pane in panes for value in pane]
        assert epochs.stored_windows == count - len(fired)
        interrupted += budget.interruption.was_interrupted
    assert fired == [b"%02d" % n for n in range(count)]  # in the order of time, each once
    assert interrupted >= 6
    assert not epochs.records.values


def test_one_window_fires_in_each_epoch_however_late_it_is() -> None:
    epochs = Epochs(Windowing(FixedWindows(10)))
    epochs.run((b"a", 1), (b"b", 11), (b"c", 21))
    for value in (b"a", b"b", b"c"):
        budget = Budget(0)
        assert epochs.run(watermark=40, interruption=budget.interruption) == [[value]]
        assert budget.interruption.was_interrupted is (value != b"c")


def test_what_comes_late_to_a_window_that_has_yet_to_fire() -> None:
    """It is in time as long as the window's lateness lasts, and in the pane that is on time."""
    windowing = Windowing(
        FixedWindows(10),
        AfterWatermark(late=AfterCount(1)),
        AccumulationMode.DISCARDING,
        allowed_lateness=100,
    )
    epochs = Epochs(windowing)
    epochs.run((b"a", 1), (b"b", 11))
    assert epochs.run(watermark=40, interruption=Budget(0).interruption) == [[b"a"]]
    assert epochs.run((b"later", 12), watermark=41, interruption=Budget(0).interruption) == [
        [b"b", b"later"]
    ]
    assert epochs.run((b"late", 12), watermark=42) == [[b"late"]]


def test_a_window_is_read_and_written_without_the_others_of_its_key() -> None:
    epochs = Epochs(Windowing(FixedWindows(10)))
    epochs.run(*[(b"x", 10 * n) for n in range(100)])
    epochs.records.puts.clear()
    epochs.run((b"y", 505))
    assert len(epochs.records.puts) < 10
    epochs.records.puts.clear()
    assert epochs.run(watermark=10) == [[b"x"]]
    assert len(epochs.records.puts) < 10


def test_what_has_come_to_a_window_is_stored_while_more_comes() -> None:
    """So that it may be larger than memory."""
    size, count = 1 << 20, 40
    epochs = Epochs(Windowing(FixedWindows(60)))
    stored: list[int] = []

    def values() -> Iterator[bytes]:
        for _ in range(count):
            stored.append(sum(epochs.records.puts))
            yield b"x" * size

    epochs.stream(values())
    assert min(size * n - stored[n] for n in range(count)) >= -size
    assert max(size * n - stored[n] for n in range(count)) < 17 * size
    (pane,) = epochs.run(watermark=60)
    assert isinstance(pane, StreamedValues)
    assert [len(value) for value in pane] == [size] * count
    assert not epochs.records.values
    epochs.logs.close()
