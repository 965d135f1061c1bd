"""The events of Nexmark: people, auctions, bids; each a function of its number and a seed.

Proportions, ranges and the ways in which ids are chosen are those of Beam's Java suite
(``GeneratorConfig``, ``PersonGenerator``, ``AuctionGenerator``, ``BidGenerator`` and the defaults
of ``NexmarkConfiguration``); the events themselves are not the same as Java's.
"""

import hashlib
import random
import string
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from apache_beam.testing.benchmarks.nexmark.models.nexmark_model import Auction, Bid, Person
from apache_beam.utils.timestamp import Timestamp

Event: TypeAlias = Any
"""A ``Person``, ``Auction`` or ``Bid`` of Beam's models, which have no types."""

AUCTIONS_PER_PERSON = 3
CYCLE = 50
"""Of so many events, the first is a person, three are auctions, the others bids."""
BASE_MS = 1_436_918_400_000
"""Time of the first event, 2015-07-15T00:00:00Z."""
FIRST_ID = 1000
FIRST_CATEGORY = 10
CATEGORIES = 5

_HOT_OF = 100  # of so many people or auctions in a row, one is hot
_LEAD = 10  # ids that are chosen although their person or auction comes later
_ACTIVE_PEOPLE = 1000
ACTIVE_EVENTS = (_ACTIVE_PEOPLE + _LEAD) * CYCLE
"""From the first event that may name a person to the last one, there are at most so many."""
_IN_FLIGHT_AUCTIONS = 100
_COLD = {"auction": 2, "seller": 4, "bidder": 4}  # one in so many is not the hot one
_PERSON_BYTES, _AUCTION_BYTES, _BID_BYTES = 200, 500, 100
_SCATTER = 953  # prime; the stride of events that are out of order

_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
)
_FIRST_NAMES = (
    *("Peter", "Paul", "Luke", "John", "Saul", "Vicky"),
    *("Kate", "Julie", "Sarah", "Deiter", "Walter"),
)
_LAST_NAMES = (
    *("Shultz", "Abrams", "Spencer", "White", "Bartels"),
    *("Walton", "Smith", "Jones", "Noris"),
)
_TEXT = "".join(random.Random(0).choices(string.ascii_lowercase + " ", k=1 << 12))


class _Draws:
    """Draws pseudo-random numbers from 256 bits that are derived from one number."""

    def __init__(self, seed: int, number: int) -> None:
        digest = hashlib.blake2b(struct.pack("<qq", seed, number), digest_size=32).digest()
        self._bits = int.from_bytes(digest, "little")

    def below(self, end: int) -> int:
        self._bits, drawn = divmod(self._bits, end)
        return drawn

    def price(self) -> int:
        """Return cents, from a dollar to a million, spread evenly over their logarithms."""
        return round(10 ** (self.below(1 << 20) / (1 << 20) * 6) * 100)

    def text(self, length: int) -> str:
        start = self.below(len(_TEXT) - length)
        return _TEXT[start : start + length]

    def padding(self, used: int, wanted: int) -> str:
        """Return what makes an event of ``used`` bytes one of about ``wanted``, by a fifth."""
        length = max(wanted - used, 0)
        fifth = length // 5
        return self.text(length - fifth + self.below(2 * fifth + 1))


class Arrival(NamedTuple):
    """The event at one position of a source, and its watermark.

    Attributes:
        number: The number of the event.
        watermark_ms: A lower bound of the times of later events, unless the workload is late.
    """

    number: int
    watermark_ms: int


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The events, and the order in which they arrive.

    Attributes:
        count: The number of all events.
        seed: The seed of people, auctions and bids.
        rate: The events per second of event time; at least 10, so that the first bids for an
            auction, which may precede it, are not so early that Beam's query 9 drops them.
        disorder: The number of consecutive events that are permuted; the watermark waits for them.
        late: Whether the watermark does not wait, so that some events are late.
    """

    count: int
    seed: int = 0
    rate: int = 1000
    disorder: int = 1
    late: bool = False

    def __post_init__(self) -> None:
        if self.rate < 10:
            raise ValueError(f"{self.rate} events in a second: at least 10 are needed")
        if self.disorder < 1 or self.disorder % _SCATTER == 0:
            raise ValueError(f"disorder {self.disorder}: neither below 1 nor divisible by 953")

    def time_ms(self, number: int) -> int:
        """Return the event time of an event."""
        return BASE_MS + number * 1000 // self.rate

    def arrival(self, position: int) -> Arrival:
        """Return the event that arrives at a position, and the watermark then."""
        first = position - position % self.disorder
        size = min(self.disorder, self.count - first)
        # The last group may be shorter, and then have a divisor in common with the stride.
        stride = _SCATTER if size == self.disorder else 1
        number = first + position * stride % size
        return Arrival(number, self.time_ms(position if self.late else first))

    def events(self) -> Iterator[Event]:
        """Yield all events in the order of their numbers, which is that of their times."""
        return map(self.event, range(self.count))

    def event(self, number: int) -> Event:
        """Return the event of a number."""
        draws = _Draws(self.seed, number)
        at = Timestamp(micros=self.time_ms(number) * 1000)
        person, place = divmod(number, CYCLE)
        if place == 0:
            return _person(draws, person, at)
        if place <= AUCTIONS_PER_PERSON:
            return self._auction(draws, number, person, place - 1, at)
        return self._bid(draws, person, at)

    def _auction(
        self, draws: _Draws, number: int, person: int, place: int, at: Timestamp
    ) -> Auction:
        seller = _hot(person) if draws.below(_COLD["seller"]) else _active(draws, person)
        initial = draws.price()
        # On average, an auction is open until so many others have come as are in flight.
        ahead = _IN_FLIGHT_AUCTIONS * CYCLE // AUCTIONS_PER_PERSON
        open_ms = self.time_ms(number + ahead) - self.time_ms(number)
        expires = at.micros // 1000 + 1 + draws.below(2 * open_ms)
        name, description = draws.text(3 + draws.below(18)), draws.text(3 + draws.below(98))
        return Auction(
            FIRST_ID + person * AUCTIONS_PER_PERSON + place,
            name,
            description,
            initial,
            initial + draws.price(),
            at,
            Timestamp(micros=expires * 1000),
            FIRST_ID + seller,
            FIRST_CATEGORY + draws.below(CATEGORIES),
            draws.padding(56 + len(name) + len(description), _AUCTION_BYTES),
        )

    def _bid(self, draws: _Draws, person: int, at: Timestamp) -> Bid:
        last = (person + 1) * AUCTIONS_PER_PERSON - 1
        if draws.below(_COLD["auction"]):
            auction = _hot(last)
        else:
            first = max(last - _IN_FLIGHT_AUCTIONS, 0)
            auction = first + draws.below(last - first + 1 + _LEAD)
        # The second of its hundred, so that it is not the hot seller.
        cold = draws.below(_COLD["bidder"]) == 0
        bidder = _active(draws, person) if cold else _hot(person) + 1
        price = draws.price()
        return Bid(FIRST_ID + auction, FIRST_ID + bidder, price, at, draws.padding(32, _BID_BYTES))


def _hot(last: int) -> int:
    """Return the number of the hot item among the last hundred, of which ``last`` is the newest."""
    return last // _HOT_OF * _HOT_OF


def _active(draws: _Draws, last: int) -> int:
    """Choose a person among the active ones, and the few that come next."""
    active = min(last + 1, _ACTIVE_PEOPLE)
    return last + 1 - active + draws.below(active + _LEAD)


def _person(draws: _Draws, person: int, at: Timestamp) -> Person:
    first = _FIRST_NAMES[draws.below(len(_FIRST_NAMES))]
    name = f"{first} {_LAST_NAMES[draws.below(len(_LAST_NAMES))]}"
    email = f"{draws.text(7)}@{draws.text(5)}.com".replace(" ", "_")
    card = " ".join(f"{draws.below(10_000):04}" for _ in range(4))
    city, state = _CITIES[draws.below(len(_CITIES))], _STATES[draws.below(len(_STATES))]
    used = 8 + len(name) + len(email) + len(card) + len(city) + len(state)
    extra = draws.padding(used, _PERSON_BYTES)
    return Person(FIRST_ID + person, name, email, card, city, state, at, extra)
