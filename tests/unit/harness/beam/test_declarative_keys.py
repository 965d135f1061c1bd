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
from beam_spark_runner.harness.bundle import Settled
from beam_spark_runner.harness.due import fire_due
from beam_spark_runner.recovery.heads import KeyedHead
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.timers import Instant
from beam_spark_runner.state.chain import ShardVersion
from beam_spark_runner.state.policy import KeyPolicy
from beam_spark_runner.state.remote.keyed_delta import KeyedDeltas
from beam_spark_runner.state.remote.keyed_shard import KeyedShard
from beam_spark_runner.state.requests import declared_states, use_maps, value_counter
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.transforms import (
    DeclarationContext,
    DeclarativeKeyedProcess,
    EventTimer,
    KeyedProcess,
    MapState,
    ProcessingTimer,
    ValueState,
)
from tests.declared import Lookups
from tests.declared_programs import Runs, plain, programs
from tests.unit.harness.beam.keyed import Running
from tests.unit.state.simulated_store import SimulatedStore
from tests.unit.state.test_keyed_shards import Files, name_of

KEY_GROUPS = 4
SECOND_US = 1_000_000


class Epochs:
    """Runs a step in epochs, with its keys in a simulated state store.

    Args:
        process: The process.
        scratch: A folder.
        limits: See ``FlightLimits``. None: keys are processed one after another.
        windows: The windows of elements.
    """

    def __init__(
        self,
        process: KeyedProcess,
        scratch: Path,
        limits: FlightLimits | None = FLIGHT_LIMITS,
        windows: Any = None,
    ) -> None:
        self._running = Running(DeclarativeKeyedProcess(process), windows)
        self._limits, self._scratch, self._windows = limits, scratch, windows
        descriptor = self._running.description.descriptor()
        use_maps(descriptor)
        self._counts = value_counter(descriptor, declared_states(descriptor))
        self.store, self._files = SimulatedStore(), Files()
        self._head = KeyedHead()
        self._epoch = 0
        self.calls = 0  # of the store, in the last epoch, until it was sealed
        self.was_interrupted = False
        self.settles = True
        self.leaves_after_us: int | None = None
        self.settled = Settled()

    def run(
        self, pairs: list[tuple[Any, Any]], watermark: int = 0, *, budget: int | None = None
    ) -> list[Any]:
        """Run an epoch; return the outputs.

        Args:
            pairs: The elements, at the time 1 s.
            watermark: The watermark after it, seconds.
            budget: After how many timers it is interrupted. None: it is not.
        """
        self._epoch += 1
        deltas = KeyedDeltas(self._files, name_of, 0, self._head)
        groups = range(KEY_GROUPS)
        with KeyedShard(self.store, groups, KEY_GROUPS, deltas, self._scratch) as shard:
            store = StoredState(
                shard.records,
                0,
                self._counts,
                lists_holds=True,
                ask=shard.records.ask,
                batches=None if self._limits is None else shard.batches,
            )
            self._process(
                store, pairs, Instant(watermark * SECOND_US, watermark * SECOND_US), budget
            )
            self._head = shard.seal(ShardVersion(self._epoch, 0))
        outputs = self._running.out
        self._running.taken.elements.clear()
        return outputs

    def _process(
        self, store: StoredState, pairs: list[tuple[Any, Any]], to: Instant, budget: int | None
    ) -> None:
        before = self.store.calls
        interruption = None
        if budget is not None:
            spent = iter(range(1_000))
            interruption = Interruption(lambda: next(spent), budget, 1)
        limits = self._limits or FLIGHT_LIMITS
        policy = KeyPolicy(
            to,
            store,
            interruption=interruption,
            in_flight=limits,
            leaves_after_us=self.leaves_after_us,
        )
        bundle = self._running.bundle = self._running.start(policy)
        try:
            self._run_bundle(bundle, store, pairs, to, interruption)
        except BaseException:
            bundle.abort()
            raise
        self.calls = self.store.calls - before
        self.was_interrupted = interruption is not None and interruption.was_interrupted

    def _run_bundle(
        self,
        bundle: Any,
        store: StoredState,
        pairs: list[tuple[Any, Any]],
        to: Instant,
        interruption: Interruption | None,
    ) -> None:
        by_key: dict[Any, list[Any]] = defaultdict(list)
        for key, value in pairs:
            by_key[key].append(value)
        bundle.restore([record.coded for record in self.settled.left])
        for key, values in by_key.items():
            if self._windows is None:
                self._running.push(key, values, time=1)
            else:
                window = self._windows.assign(self._windows.AssignContext(1))[0]
                self._running.push(key, values, (window,), time=1)
            bundle.advance_key()

        def fire(owner: str, key: bytes) -> None:
            bundle.begin_key(key)
            bundle.advance_key()

        if interruption is not None:
            interruption.begin_again()
        fire_due(store, to, fire, interruption)
        if self.settles:
            self.settled = bundle.settle()
        bundle.finish()


class Programs(Runs):
    """Runs programs, and at 5 s and 9 s tells what two states have, which it has changed then."""

    soon = EventTimer("soon")
    later = ProcessingTimer("later")

    def declare_process(self, ctx: DeclarationContext) -> Any:
        run = super().declare_process(ctx)

        def element(pair: Any) -> None:
            self.soon.set(5)
            self.later.set(9, tag="x")
            run(pair)

        return element

    def declare_on_event_time(self, ctx: DeclarationContext) -> Any:
        def tell(_: Any) -> Any:
            both = self.sum_0.read().then_combine(self.map_1.items(), lambda a, b: (a, plain(b)))
            return both.then_accept(lambda told: ctx.output((ctx.key, "soon", told)))

        return ctx.declare_chain(lambda _: self.sum_0.add(100)).then_compose(tell).finish()

    def declare_on_processing_time(self, ctx: DeclarationContext) -> Any:
        read = ctx.declare("read", lambda _: self.map_1.get("a"))
        tell = ctx.declare("tell", lambda told: ctx.output((ctx.key, "later", told)))
        return lambda timer: (
            self.map_1.put("a", len(timer.tag)).then_compose(read).then_accept(tell)
        )


def by_place(outputs: list[Any]) -> dict[Any, list[Any]]:
    """Return the outputs of each key and chain, in their order."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for key, place, told in outputs:
        found[key, place].append(told)
    return found


TINY = FlightLimits(records=5, size=2_000, of_key=2, batch=3, wait_us=10)


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


class ManyTimersLeft(KeyedProcess):
    """Each key has timers that wait for an entry; the last ones end its window."""

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

    def declare_on_window_expiration(self, ctx: DeclarationContext) -> Any:
        count = ctx.declare("count", lambda items: ctx.output((ctx.key, len([*items]))))
        return lambda _: self.seen.items().then_accept(count)


def test_timers_are_left_and_then_drop_their_window(tmp_path: Path) -> None:
    epochs = Epochs(ManyTimersLeft(), tmp_path, windows=FixedWindows(60))
    keys = 20
    epochs.run([(key, 20) for key in range(keys)], -1)
    epochs.leaves_after_us = 0
    found = []
    kinds = set()
    for watermark in (30, 100):
        found += epochs.run([], watermark)
        while not epochs.settled.is_finished:
            kinds |= {b"window_expiration" in each.coded for each in epochs.settled.left}
            found += epochs.run([], watermark)
    assert sorted(found) == sorted((key, size) for key in range(keys) for size in [200] * 20 + [20])
    assert kinds == {False, True}
    epochs.run([])
    assert not any(map(any, entries(epochs.store).values()))


def entries(store: SimulatedStore) -> Any:
    """Return the names of all entries, without values: these have random stamps."""
    return {
        number: {structure: set(each) for structure, each in group.entries.items()}
        for number, group in store.groups.items()
    }


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


@pytest.fixture(autouse=True)
def _no_files_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert [each for each in tmp_path.rglob("overlay-*") if each.is_dir()] == []
