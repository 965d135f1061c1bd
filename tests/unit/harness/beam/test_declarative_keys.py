"""Declarative steps over a state store: many keys at a time give what one after another gives."""

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner.core.errors import BundleFailedError, InvariantError
from beam_spark_runner.core.flight_limits import FLIGHT_LIMITS, FlightLimits
from beam_spark_runner.state.remote.key_store import StateStoreError
from beam_spark_runner.transforms import (
    DeclarationContext,
    EventTimer,
    KeyedProcess,
    MapState,
    ValueState,
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
def test_random_programs(seed: int, limits: FlightLimits, tmp_path: Path) -> None:
    draw = random.Random(seed)
    keys = 12
    of_keys = {key: programs(draw, 30) for key in range(keys)}
    epochs: list[tuple[list[Any], int, int | None]] = []
    for watermark, budget in ((1, None), (2, None), (6, draw.choice([None, 1, 7])), (10, None)):
        some = [draw.randrange(keys) for _ in range(10)] + [0] * 5  # one key is hot
        pairs = [(key, of_keys[key].pop()) for key in some]
        epochs.append((pairs, watermark, budget))
        if budget is not None:  # what fires first depends on the order of keys
            epochs.append(([], watermark, None))
    in_flight = Epochs(Programs(), tmp_path / "in flight", limits)
    in_turn = Epochs(Programs(), tmp_path / "in turn", None)
    found: dict[Any, list[Any]] = defaultdict(list)
    expected: dict[Any, list[Any]] = defaultdict(list)
    for pairs, watermark, budget in epochs:
        for epochs_of, outputs in ((in_flight, found), (in_turn, expected)):
            for place, told in by_place(epochs_of.run(pairs, watermark, budget=budget)).items():
                outputs[place] += told
    assert found == expected
    in_flight.run([])  # applies the last changes
    in_turn.run([])
    assert entries(in_flight.store) == entries(in_turn.store)


def test_lookups_of_many_keys_share_round_trips(tmp_path: Path) -> None:
    epochs = Epochs(Lookups(), tmp_path)
    keys = 200
    epochs.run([(key, -60) for key in range(keys)])
    found = epochs.run([(key, 50) for key in range(keys)])
    assert sorted(found) == [(key, 50, 100) for key in range(keys)]
    # For the packs, for timers, and for each lookup one or two: heads may not fit into the packs.
    assert epochs.calls <= 10


def test_lookups_of_a_hot_key_share_round_trips(tmp_path: Path) -> None:
    epochs = Epochs(Lookups(), tmp_path)
    epochs.run([(0, -60)])
    found = epochs.run([(0, 50)] * 500)
    assert found == [(0, 50, 100)] * 500
    assert epochs.calls <= 10


class Fails(KeyedProcess):
    """Its callbacks fail for some elements, after a lookup that has waited."""

    seen = MapState("seen", VarIntCoder(), VarIntCoder())

    def declare_process(self, ctx: DeclarationContext) -> Any:
        def check(_: Any) -> None:
            if ctx.value == 7:
                raise ValueError("seven")

        checked = ctx.declare("is checked", check)

        def element(pair: tuple[int, int]) -> Any:
            if pair[1] >= 0:
                return self.seen.get(50).then_accept(checked)
            for number in range(100):
                self.seen.put(number, number)
            return None

        return element


def test_an_exception_names_step_callback_and_element(tmp_path: Path) -> None:
    epochs = Epochs(Fails(), tmp_path)
    epochs.run([(key, -1) for key in range(3)])
    with pytest.raises(BundleFailedError) as raised:
        epochs.run([(0, 1), (1, 7), (2, 2)])
    text = str(raised.value)
    assert "ValueError: seven" in text
    assert "'is checked'" in text
    assert "keyed" in text
    assert "(1, 7)" in text


def test_a_store_that_fails_is_not_the_fault_of_the_step(tmp_path: Path) -> None:
    """The epoch is repeated for it; whatever access meets it, the error is that of the store."""
    epochs = Epochs(Lookups(), tmp_path)
    epochs.run([(key, -60) for key in range(5)])
    for call in range(1, 5):
        epochs.store.fails_after = call
        with pytest.raises(StateStoreError, match="it does not answer"):
            epochs.run([(key, 50) for key in range(5)])
    epochs.store.fails_after = None
    assert sorted(epochs.run([(key, 50) for key in range(5)])) == [
        (key, 50, 100) for key in range(5)
    ]


class Unreadable(VarIntCoder):  # type: ignore[misc]
    """Encodes numbers, and cannot decode 7."""

    def decode(self, encoded: bytes) -> int:
        number: int = super().decode(encoded)
        if number == 7:
            raise ValueError("a seven")
        return number


class Reads(KeyedProcess):
    """Looks up an entry that a coder may not decode."""

    seen = MapState("seen", VarIntCoder(), Unreadable())

    def declare_process(self, ctx: DeclarationContext) -> Any:
        def element(pair: tuple[int, int]) -> Any:
            if pair[1] >= 0:
                return self.seen.get(pair[1]).then_accept(ctx.output)
            for number in range(100):
                self.seen.put(number, number)
            return None

        return element


def test_an_exception_of_a_coder_names_step_and_element(tmp_path: Path) -> None:
    epochs = Epochs(Reads(), tmp_path)
    epochs.run([(0, -1)])
    assert epochs.run([(0, 6)]) == [6]
    with pytest.raises(BundleFailedError) as raised:
        epochs.run([(0, 1), (0, 7)])
    text = str(raised.value)
    assert "ValueError: a seven" in text
    assert "keyed" in text
    assert "(0, 7)" in text


def test_an_end_with_elements_in_flight_is_noticed(tmp_path: Path) -> None:
    epochs = Epochs(Lookups(), tmp_path)
    epochs.run([(0, -60)])
    epochs.settles = False
    with pytest.raises(InvariantError, match="in flight"):
        epochs.run([(0, 50)])


class WithContext(KeyedProcess):
    """Tells all that the context has, before and after a lookup that waits."""

    seen = MapState("seen", VarIntCoder(), VarIntCoder())
    total = ValueState("total", VarIntCoder())

    def declare_process(self, ctx: DeclarationContext) -> Any:
        mine = ctx.declare_variable(VarIntCoder(), "mine", lambda: -1)

        def told() -> Any:
            return ctx.key, ctx.value, ctx.window.end.micros, ctx.timestamp.micros, mine.get()

        def element(pair: tuple[int, int]) -> None:
            if pair[1] < 0:
                for number in range(100):
                    self.seen.put(number, number)
                return
            mine.set(pair[1])
            before = told()
            self.seen.get(pair[1]).then_accept(lambda _: ctx.output((before, told())))

        return element


def test_callbacks_have_the_context_of_their_record(tmp_path: Path) -> None:
    epochs = Epochs(WithContext(), tmp_path, windows=FixedWindows(10))
    epochs.run([(key, -1) for key in range(30)])
    found = epochs.run([(key, key + more) for key in range(30) for more in (0, 1)])
    assert [before for before, after in found if before != after] == []
    assert sorted(before for before, _ in found) == sorted(
        (key, key + more, 10 * SECOND_US, SECOND_US, key + more)
        for key in range(30)
        for more in (0, 1)
    )


class ManyTimers(KeyedProcess):
    """Each key has several timers; each looks up an entry that is not in the pack."""

    seen = MapState("seen", VarIntCoder(), StrUtf8Coder())
    timer = EventTimer("timer")

    def declare_process(self, ctx: DeclarationContext) -> Any:
        def element(pair: tuple[int, int]) -> None:
            for number in range(pair[1]):
                self.seen.put(number, "x" * 200)
                self.timer.set(number, tag=str(number))

        return element

    def declare_on_event_time(self, ctx: DeclarationContext) -> Any:
        emit = ctx.declare("emit", lambda found: ctx.output((ctx.key, len(found))))
        return lambda timer: self.seen.get(int(timer.tag)).then_accept(emit)


def test_interrupted_timers_remain_set(tmp_path: Path) -> None:
    epochs = Epochs(ManyTimers(), tmp_path)
    assert epochs.run([(key, 20) for key in range(5)], -1) == []
    told: list[Any] = []
    runs = 0
    while len(told) < 100:
        told += epochs.run([], 100, budget=15)
        runs += 1
        assert runs < 50
    assert sorted(told) == sorted((key, 200) for key in range(5) for _ in range(20))
    assert runs > 1
    assert epochs.run([], 100) == []


def test_timers_of_many_keys_share_round_trips(tmp_path: Path) -> None:
    epochs = Epochs(ManyTimers(), tmp_path)
    epochs.run([(key, 20) for key in range(50)], -1)
    assert len(epochs.run([], 100)) == 1_000
    assert epochs.calls <= 40


class ReadsAll(KeyedProcess):
    """Fills a map with entries that do not fit into packs; 0 asks for the number of all of them."""

    entries = MapState("entries", VarIntCoder(), StrUtf8Coder())

    def declare_process(self, ctx: DeclarationContext) -> Any:
        def emit(items: Any) -> None:
            ctx.output((ctx.key, sum(1 for _ in items)))

        emitted = ctx.declare("emit", emit)

        def element(pair: tuple[int, int]) -> Any:
            for number in range(pair[1]):
                self.entries.put(number, "x" * 300)
            return None if pair[1] else self.entries.items().then_accept(emitted)

        return element


def test_all_entries_of_many_large_maps_share_round_trips(tmp_path: Path) -> None:
    epochs = Epochs(ReadsAll(), tmp_path, windows=FixedWindows(60))
    keys, count = 4, 1_200
    epochs.run([(key, count) for key in range(keys)], -1)
    found = epochs.run([(key, 0) for key in range(keys)], -1)
    assert sorted(found) == [(key, count) for key in range(keys)]
    # For the packs and timers, and in turn for more names and for more values.
    assert epochs.calls <= 16


def test_windows_of_many_large_maps_are_dropped_in_few_round_trips(tmp_path: Path) -> None:
    """Names are read, and no values."""
    epochs = Epochs(ReadsAll(), tmp_path, windows=FixedWindows(60))
    keys = 4
    epochs.run([(key, 1_200) for key in range(keys)], -1)
    epochs.run([], 100)
    assert epochs.calls <= 8
    epochs.run([], 100)
    assert not any(
        each for group in epochs.store.groups.values() for each in group.entries.values()
    )


@pytest.fixture(autouse=True)
def _no_files_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert [each for each in tmp_path.rglob("overlay-*") if each.is_dir()] == []
