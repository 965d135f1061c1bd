"""Records that declarative steps leave in flight, and continue in the next epoch."""

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from apache_beam.coders import ListCoder, StrUtf8Coder, VarIntCoder
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner._generated import store_pb2
from beam_spark_runner.core.flight_limits import FLIGHT_LIMITS, FlightLimits
from beam_spark_runner.transforms import (
    DeclarationContext,
    EventTimer,
    KeyedProcess,
    MapState,
)
from tests.declared import Lookups
from tests.declared_programs import programs
from tests.unit.harness.beam.declarative_epochs import (
    SECOND_US,
    TINY,
    Epochs,
    Programs,
    by_place,
    entries,
)


@pytest.mark.parametrize("limits", [FLIGHT_LIMITS, TINY])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_left_continues_in_the_next_epoch(
    seed: int, limits: FlightLimits, tmp_path: Path
) -> None:
    draw = random.Random(seed)
    keys = 12
    of_keys = {key: programs(draw, 60) for key in range(keys)}
    epochs: list[tuple[list[Any], int]] = []
    for watermark in (1, 2, 2, 6, 6, 10):
        some = [draw.randrange(keys) for _ in range(10)] + [0] * 5  # one key is hot
        epochs.append(([(key, of_keys[key].pop()) for key in some], watermark))
    leaving = Epochs(Programs(), tmp_path / "leaving", limits)
    in_turn = Epochs(Programs(), tmp_path / "in turn", None)
    found: dict[Any, list[Any]] = defaultdict(list)
    expected: dict[Any, list[Any]] = defaultdict(list)

    def run(epochs_of: Epochs, outputs: dict[Any, list[Any]], *epoch: Any) -> None:
        for place, told in by_place(epochs_of.run(*epoch)).items():
            outputs[place] += told

    for pairs, watermark in epochs:
        run(in_turn, expected, pairs, watermark)
        leaving.leaves_after_us = 0
        run(leaving, found, pairs, watermark)
        # Later records may come before a timer that waits for earlier ones, as if it were not due.
        while not leaving.settled.is_finished:
            run(leaving, found, [], watermark)
    assert found == expected
    leaving.run([])  # applies the last changes
    in_turn.run([])
    assert entries(leaving.store) == entries(in_turn.store)


def test_lookups_are_left_one_after_another(tmp_path: Path) -> None:
    """No read is executed while they are left, and each epoch executes at least one."""
    epochs = Epochs(Lookups(), tmp_path)
    keys = 60
    epochs.run([(key, -60) for key in range(keys)])
    epochs.leaves_after_us = 0
    found = epochs.run([(key, 50) for key in range(keys)])
    assert found == []
    assert len(epochs.settled.left) == keys
    calls = [epochs.calls]
    while not epochs.settled.is_finished:
        assert all(record.hold_us == SECOND_US for record in epochs.settled.left)
        found += epochs.run([])
        calls.append(epochs.calls)
    assert sorted(found) == [(key, 50, 100) for key in range(keys)]
    assert len(calls) in (3, 4)
    assert max(calls) <= 6


def test_elements_of_a_hot_key_are_left_in_their_order(tmp_path: Path) -> None:
    epochs = Epochs(Lookups(), tmp_path)
    epochs.run([(0, -60)])
    epochs.leaves_after_us = 0
    found = epochs.run([(0, number % 60) for number in range(100)])
    assert len(found) + len(epochs.settled.left) == 100
    assert len(epochs.settled.left) > 90
    found += epochs.run([(0, 7)])
    runs = 1
    while not epochs.settled.is_finished:
        found += epochs.run([])
        runs += 1
        assert runs <= 3 * 101  # each makes one of three lookups of an element, at least
    assert found == [(0, number % 60, 100) for number in range(100)] + [(0, 7, 100)]


def test_no_more_is_left_than_the_limit(tmp_path: Path) -> None:
    epochs = Epochs(Lookups(), tmp_path, FLIGHT_LIMITS._replace(left_size=4_000))
    epochs.run([(0, -60)])
    epochs.leaves_after_us = 0
    found = epochs.run([(0, number % 60) for number in range(100)])
    assert len(found) + len(epochs.settled.left) == 100
    assert 10 < len(epochs.settled.left) < 80


class TimersWait(KeyedProcess):
    """Timers, and the end of the window, look up an entry and then one of another map."""

    first = MapState("first", VarIntCoder(), StrUtf8Coder())
    second = MapState("second", VarIntCoder(), StrUtf8Coder())
    timer = EventTimer("timer")

    def declare_process(self, ctx: DeclarationContext) -> Any:
        def element(pair: tuple[int, int]) -> None:
            for number in range(100):
                self.first.put(number, "x" * 200)
                self.second.put(number, "y" * 300)
            for number in range(pair[1]):
                self.timer.set(number, tag=str(number))

        return element

    def declare_on_event_time(self, ctx: DeclarationContext) -> Any:
        number = ctx.declare_variable(VarIntCoder(), "number", lambda: -1)
        follow = ctx.declare("follow", lambda _: self.second.get(number.get()))
        emit = ctx.declare("emit", lambda found: ctx.output((ctx.key, number.get(), len(found))))

        def fired(timer: Any) -> Any:
            number.set(int(timer.tag))
            return self.first.get(number.get()).then_compose(follow).then_accept(emit)

        return fired

    def declare_on_window_expiration(self, ctx: DeclarationContext) -> Any:
        again = ctx.declare("again", lambda _: self.second.get(3))
        tell = ctx.declare("tell", lambda found: ctx.output((ctx.key, "end", len(found))))
        return lambda _: self.first.get(3).then_compose(again).then_accept(tell)


def test_timers_are_left_and_then_drop_their_window(tmp_path: Path) -> None:
    epochs = Epochs(TimersWait(), tmp_path, windows=FixedWindows(60))
    keys = 6
    epochs.run([(key, 5) for key in range(keys)], -1)
    epochs.leaves_after_us = 0
    found = []
    dropping = set()
    for watermark in (30, 100):
        found += epochs.run([], watermark)
        while not epochs.settled.is_finished:
            left = [store_pb2.RecordLeft.FromString(each.coded) for each in epochs.settled.left]
            assert all(each.has_begun and each.HasField("timer") for each in left)
            dropping |= {each.drops_window for each in left}
            found += epochs.run([], watermark)
    assert sorted(found, key=repr) == sorted(
        [(key, number, 300) for key in range(keys) for number in [*range(5), "end"]], key=repr
    )
    assert dropping == {False, True}
    epochs.run([])
    assert not any(
        each for group in epochs.store.groups.values() for each in group.entries.values()
    )


class Remembers(KeyedProcess):
    """A callback of the second of two reads uses a variable that the code of elements changes."""

    first = MapState("first", VarIntCoder(), StrUtf8Coder())
    second = MapState("second", VarIntCoder(), StrUtf8Coder())

    def declare_process(self, ctx: DeclarationContext) -> Any:
        last = ""
        follow = ctx.declare("follow", lambda _: self.second.get(7))
        emit = ctx.declare("emit", lambda found: ctx.output((ctx.key, last, len(found))))

        def element(pair: tuple[int, int]) -> Any:
            nonlocal last
            if pair[1] >= 0:
                last = "set"
                return self.first.get(pair[1]).then_compose(follow).then_accept(emit)
            for number in range(100):
                self.first.put(number, "x" * 200)
                self.second.put(number, "y" * 300)
            return ctx.completed()

        return element


def test_a_read_whose_callback_uses_what_elements_change_is_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    epochs = Epochs(Remembers(), tmp_path)
    epochs.leaves_after_us = 0
    epochs.run([(key, -1) for key in range(3)])
    found = epochs.run([(key, 50) for key in range(3)])
    assert sorted(found) == [(key, "set", 300) for key in range(3)]
    assert not epochs.settled.left
    assert "the callback 'emit' waits for" in caplog.text
    assert "it uses last" in caplog.text


class Gathers(KeyedProcess):
    """Has a list for each element, which is changed in place, before and after a read."""

    first = MapState("first", VarIntCoder(), StrUtf8Coder())
    second = MapState("second", VarIntCoder(), StrUtf8Coder())

    def declare_process(self, ctx: DeclarationContext) -> Any:
        numbers = ctx.declare_variable(ListCoder(VarIntCoder()), "numbers", list)

        def noted(found: str) -> Any:
            numbers.get().append(len(found))
            return self.second.get(ctx.value)

        follow = ctx.declare("noted", noted)
        emit = ctx.declare("emit", lambda _: ctx.output((ctx.key, ctx.value, [*numbers.get()])))

        def element(pair: tuple[int, int]) -> Any:
            if pair[1] >= 0:
                numbers.get().append(pair[1])
                return self.first.get(pair[1]).then_compose(follow).then_accept(emit)
            for number in range(60):
                self.first.put(number, "x" * 200)
                self.second.put(number, "y" * 300)
            return ctx.completed()

        return element


def test_each_record_has_the_values_that_its_variables_had_when_it_was_left(tmp_path: Path) -> None:
    epochs = Epochs(Gathers(), tmp_path)
    keys = 5
    epochs.run([(key, -1) for key in range(keys)])
    epochs.leaves_after_us = 0
    found = epochs.run([(key, value) for key in range(keys) for value in (3, 4)])
    left = 0
    while not epochs.settled.is_finished:
        left += len(epochs.settled.left)
        found += epochs.run([])
    assert left > keys
    assert sorted(found) == [(key, value, [value, 200]) for key in range(keys) for value in (3, 4)]
