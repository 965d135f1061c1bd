"""Records in flight: random programs give what they give one record after another."""

import random
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_spark_runner.core.flight_limits import FLIGHT_LIMITS, FlightLimits
from beam_spark_runner.semantics.in_flight import InFlight

FEW = FlightLimits(records=7, size=40, of_key=3, batch=4, wait_us=5)
EAGER = FlightLimits(records=3, size=1_000, of_key=1, batch=1, wait_us=1)
MANY = FlightLimits(records=1_000, size=100_000, of_key=64, batch=50, wait_us=1_000)


class Log:
    """A log in memory, which counts what it has."""

    def __init__(self, together: int = 2) -> None:
        self._together = together
        self._items: dict[int, deque[tuple[Any, int]]] = defaultdict(deque)

    def append(self, key: int, item: Any, size: int) -> None:
        self._items[key].append((item, size))

    def take(self, key: int) -> Iterable[tuple[Any, int]]:
        items = self._items[key]
        return [items.popleft() for _ in range(min(self._together, len(items)))]

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))


class Element(NamedTuple):
    """A program: ``read`` waits for the state of the key, ``add`` changes it, ``pair`` reads twice.

    A ``timer`` is set to fire in the next advance, with a separate program.
    """

    name: int
    steps: tuple[Any, ...]


class Advance(NamedTuple):
    """Fires at most ``most`` timers of the key: those that are left stay set."""

    most: int


class Continued(NamedTuple):
    """A program that waits for requests, as an earlier machine has left it."""

    code: Iterator[int]
    requests: int


class Key:
    """The state of a key, and what it has emitted."""

    def __init__(self) -> None:
        self.sum = 0
        self.timers: deque[Element] = deque()
        self.emitted: list[Any] = []


def run(key: Key, element: Element) -> Iterator[int]:
    """Run a program; yield how many requests it waits for together."""
    key.emitted.append((element.name, "begins"))
    for step in element.steps:
        match step:
            case ("read",):
                yield 1
                key.emitted.append((element.name, key.sum))
            case ("pair",):
                yield 2
                key.emitted.append((element.name, 2 * key.sum))
            case ("if", number):  # a condition: some read once more
                yield 1
                if key.sum % 2:
                    yield 1
                    key.sum += number
            case ("add", number):
                key.sum += number
            case ("timer", *steps):
                key.timers.append(Element(-element.name, tuple(steps)))
    key.emitted.append((element.name, "ends"))


def one_after_another(items: list[tuple[int, Element | Advance]]) -> dict[int, list[Any]]:
    keys: dict[int, Key] = defaultdict(Key)
    for place, item in items:
        key = keys[place]
        if isinstance(item, Element):
            deque(run(key, item), maxlen=0)
        else:
            left = item.most
            while key.timers and left:
                left -= 1
                deque(run(key, key.timers.popleft()), maxlen=0)
    return {place: key.emitted for place, key in keys.items()}


class Machine:
    """Executes the machine: replies come in any order, between the items."""

    def __init__(self, limits: FlightLimits, draw: random.Random, log: Log) -> None:
        self.flights: InFlight[int, Any, tuple[int, Any]] = InFlight(limits, log)
        self.limits, self.draw = limits, draw
        self.keys: dict[int, Key] = defaultdict(Key)
        self.codes: dict[int, Iterator[int]] = {}
        self.left: dict[int, int] = {}  # of the advance of a key that has begun
        self.waiting: dict[int, int] = {}  # requests before the code of the key continues
        self.sent: list[tuple[int, Any]] = []
        self.now_us = 0
        self.in_flight = self.most_in_flight = 0

    def take(self, place: int, item: Element | Advance, size: int) -> None:
        self.flights.add(place, item, size)
        self.run_ready()
        self.now_us += self.draw.randrange(3)
        while self.flights.is_full or self.flights.is_batch_due(self.now_us):
            self.send()
            self.reply()

    def settle(self) -> None:
        while not self.flights.is_empty:
            self.send()
            self.reply()

    def send(self) -> None:
        batch = self.flights.batch()
        assert len(batch) <= self.limits.batch
        self.sent += batch

    def reply(self) -> None:
        """Answer one request, or some, in any order."""
        self.draw.shuffle(self.sent)
        for _ in range(self.draw.randint(1, max(1, len(self.sent)))):
            if not self.sent:
                break
            place, code = self.sent.pop()
            self.waiting[place] -= 1
            if not self.waiting[place]:
                self.step(place, code)
            self.flights.returned(place)
        self.run_ready()

    def leave(self) -> list[tuple[int, Any]]:
        """Stop; execute some requests, and return what is left, for another machine."""
        self.send()
        while self.sent:
            self.reply()
        self.flights.stop()
        kept: set[int] = set()  # keys whose requests are not executed
        while requests := self.flights.withdraw(lambda request: request[0] not in kept):
            for place, code in requests:
                if self.waiting[place] == 1 and self.draw.random() < 0.5:
                    kept.add(place)
                    self.flights.wait((place, code), self.now_us)
                else:
                    self.sent.append((place, code))
            while self.sent:
                self.reply()
        codes = dict(self.flights.withdraw(lambda _: True))
        found: list[tuple[int, Any]] = []
        for place, begun, waiting in self.flights.left():
            if begun is not None:
                found.append((place, Continued(codes.pop(place), self.waiting.pop(place))))
                if isinstance(begun, Advance):
                    found.append((place, Advance(self.left.pop(place))))
            found += ((place, item) for item in waiting)
        assert not codes
        assert self.flights.is_empty
        assert self.flights.size == 0
        return found

    def run_ready(self) -> None:
        while (begun := self.flights.begin()) is not None:
            place, item = begun
            assert not self.waiting.get(place)
            keeps = False
            if isinstance(item, Continued):
                self.waits(place, item.code, item.requests)
            elif isinstance(item, Element):
                self.step(place, run(self.keys[place], item))
            else:
                left = self.left.setdefault(place, item.most)
                timers = self.keys[place].timers
                if timers and left:
                    keeps = True
                    self.left[place] -= 1
                    self.step(place, run(self.keys[place], timers.popleft()))
                else:
                    del self.left[place]
            self.flights.returned(place, keeps=keeps)

    def step(self, place: int, code: Iterator[int]) -> None:
        self.waits(place, code, next(code, 0))

    def waits(self, place: int, code: Iterator[int], requests: int) -> None:
        self.waiting[place] = requests
        for _ in range(requests):
            self.flights.refer(place)
            self.flights.wait((place, code), self.now_us)


def items_of(draw: random.Random, count: int, keys: int) -> list[tuple[int, Element | Advance]]:
    def steps(depth: int) -> tuple[Any, ...]:
        kinds = ["read", "pair", "if", "add", "timer"][: 5 if depth else 4]
        found: list[Any] = []
        for _ in range(draw.randrange(4)):
            match draw.choice(kinds):
                case "timer":
                    found.append(("timer", *steps(depth - 1)))
                case "add" | "if" as kind:
                    found.append((kind, draw.randrange(1, 4)))
                case kind:
                    found.append((kind,))
        return tuple(found)

    return [
        (
            # Most are of one key: it is hot.
            draw.randrange(keys) if draw.random() < 0.5 else 0,
            Advance(draw.choice([0, 1, 9])) if draw.random() < 0.3 else Element(name + 1, steps(2)),
        )
        for name in range(count)
    ]


@pytest.mark.parametrize("limits", [FEW, EAGER, MANY, FLIGHT_LIMITS])
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=500)
def test_each_key_is_as_if_records_came_one_after_another(limits: FlightLimits, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(10):
        items = items_of(draw, draw.randrange(30), draw.randint(1, 6))
        log = Log(draw.randint(1, 3))
        machine = Machine(limits, draw, log)
        for place, item in items:
            machine.take(place, item, draw.randrange(20))
        machine.settle()
        found = {place: key.emitted for place, key in machine.keys.items() if key.emitted}
        assert found == {place: told for place, told in one_after_another(items).items() if told}
        assert len(log) == 0
        assert not machine.flights.is_full


@pytest.mark.parametrize("limits", [FEW, EAGER, MANY, FLIGHT_LIMITS])
@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=200)
def test_what_is_left_continues_in_another_machine(limits: FlightLimits, seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(10):
        items = items_of(draw, draw.randrange(30), draw.randint(1, 6))
        log = Log(draw.randint(1, 3))
        machine = Machine(limits, draw, log)
        for place, item in items:
            if draw.random() < 0.1:
                left = machine.leave()
                assert len(log) == 0
                keys = machine.keys
                machine = Machine(limits, draw, log)
                machine.keys = keys
                for each in left:
                    machine.flights.add(*each, draw.randrange(20))
                machine.run_ready()
            machine.take(place, item, draw.randrange(20))
        machine.settle()
        found = {place: key.emitted for place, key in machine.keys.items() if key.emitted}
        assert found == {place: told for place, told in one_after_another(items).items() if told}


def test_an_item_that_has_done_nothing_waits_again() -> None:
    flights: InFlight[str, int, str] = InFlight(FLIGHT_LIMITS, Log())  # type: ignore[arg-type]
    for number in range(3):
        flights.add("key", number, 10)
    assert flights.begin() == ("key", 0)
    flights.wait("opens the key", 0)
    flights.stop()
    assert flights.withdraw(lambda _: True) == ["opens the key"]
    flights.put_back("key")
    assert flights.begin() is None
    assert flights.size == 30
    assert [(key, begun, [*waiting]) for key, begun, waiting in flights.left()] == [
        ("key", None, [0, 1, 2])
    ]
    assert flights.size == 0


def test_keys_are_processed_at_the_same_time() -> None:
    flights: InFlight[str, int, str] = InFlight(FLIGHT_LIMITS, Log())  # type: ignore[arg-type]
    for number, key in enumerate("abab"):
        flights.add(key, number, 1)
    begun = []
    while (taken := flights.begin()) is not None:
        begun.append(taken)
        flights.refer(taken[0])
        flights.wait(taken[0], 0)
        flights.returned(taken[0])
    assert begun == [("a", 0), ("b", 1)]
    assert flights.batch() == ["a", "b"]
    flights.returned("b")
    assert flights.begin() == ("b", 3)
    assert flights.begin() is None


def test_a_batch_is_due_when_it_is_large_or_old() -> None:
    flights: InFlight[int, int, int] = InFlight(FlightLimits(batch=3, wait_us=10), Log())
    for number in range(2):
        flights.wait(number, now_us=5 + number)
    assert not flights.is_batch_due(14)
    assert flights.is_batch_due(15)
    flights.wait(2, now_us=7)
    flights.wait(3, now_us=7)
    assert flights.is_batch_due(7)
    assert flights.batch() == [0, 1, 2]
    assert not flights.is_batch_due(7)
    assert flights.is_batch_due(17)


@pytest.mark.parametrize(
    ("count", "size", "is_full"),
    [(5, 1, False), (6, 1, True), (2, 49, False), (2, 50, True), (1, 100, True)],
)
def test_records_and_bytes_take_places(count: int, size: int, is_full: bool) -> None:
    flights: InFlight[int, int, int] = InFlight(FlightLimits(records=6, size=100), Log())
    for number in range(count):
        flights.add(number, number, size)
    assert flights.is_full is is_full
    while (begun := flights.begin()) is not None:
        flights.returned(begun[0])
    assert not flights.is_full
    assert flights.is_empty


def test_a_hot_key_does_not_take_all_places() -> None:
    log = Log(together=64)
    flights: InFlight[int, int, int] = InFlight(FLIGHT_LIMITS, log)
    for number in range(100_000):
        flights.add(0, number, 1_000)
    assert not flights.is_full
    assert len(log) == 100_000 - FLIGHT_LIMITS.of_key
    seen = []
    while (begun := flights.begin()) is not None:
        seen.append(begun[1])
        flights.returned(0)
    assert seen == [*range(100_000)]
    assert len(log) == 0


def test_timers_of_a_full_buffer_fire() -> None:
    """What fires in an advance needs no place, so that a key never waits for itself."""
    flights: InFlight[int, str, str] = InFlight(FlightLimits(records=1), Log())
    flights.add(0, "advance", 0)
    assert flights.is_full
    for _ in range(3):
        assert flights.begin() == (0, "advance")
        flights.refer(0)  # a timer has fired, and requests something
        flights.wait("read", 0)
        flights.returned(0, keeps=True)
        assert flights.batch() == ["read"]
        flights.returned(0)
    assert flights.begin() == (0, "advance")
    flights.returned(0)
    assert flights.is_empty
