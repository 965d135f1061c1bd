"""The expected results of the Nexmark queries, computed by plain loops over the events.

All functions take events in the order of their times. Times are microseconds since 1970. Each
docstring names the parts of Beam's model that determine the results.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from apache_beam.testing.benchmarks.nexmark.models.nexmark_model import Auction, Bid, Person
from apache_beam.utils.timestamp import Timestamp

from benchmarks.nexmark.events import Event
from benchmarks.nexmark.queries import AUCTION_SKIP, PERIOD_S, WINDOW_S

Events: TypeAlias = Iterable[Event]
Bag: TypeAlias = "Counter[tuple[Any, ...]]"
"""A multiset."""

SECOND = 1_000_000
_EUROS = 0.89
_LAST_SALES = 10


class Sale(NamedTuple):
    """An auction that ended with a winning bid.

    Attributes:
        auction: The auction.
        price: The price of the winning bid.
        at: The time of the winning bid.
    """

    auction: Any
    price: int
    at: int


def plain(model: Event) -> tuple[Any, ...]:
    """Return an event as a tuple: Beam's models compare by identity."""
    fields = vars(model).values()
    values = (each.micros if isinstance(each, Timestamp) else each for each in fields)
    return (type(model).__name__, *values)


def _bids(events: Events) -> Iterator[Any]:
    return (event for event in events if isinstance(event, Bid))


def passed_through(events: Events) -> Bag:
    """Query 0: all events."""
    return Counter(map(plain, events))


def in_euros(events: Events) -> Bag:
    """Query 1: all bids, with another price."""
    euros = (
        Bid(bid.auction, bid.bidder, bid.price * _EUROS, bid.date_time, bid.extra)
        for bid in _bids(events)
    )
    return Counter(map(plain, euros))


def bids_for_some_auctions(events: Events) -> Bag:
    """Query 2: auction and price of the bids for each 123rd auction."""
    return Counter(
        (bid.auction, bid.price) for bid in _bids(events) if bid.auction % AUCTION_SKIP == 0
    )


def local_items(events: Events) -> dict[int, Bag]:
    """Query 3: by person, all of the auctions of category 10 that people in OR, ID or CA have."""
    people, auctions = {}, defaultdict(list)
    for event in events:
        if isinstance(event, Person) and event.state in ("OR", "ID", "CA"):
            people[event.id] = event
        elif isinstance(event, Auction) and event.category == 10:
            auctions[event.seller].append(event)
    return {
        id_: Counter(
            (person.name, person.city, person.state, auction.id) for auction in auctions[id_]
        )
        for id_, person in people.items()
        if id_ in auctions
    }


def sales(events: Events) -> list[Sale]:
    """Query 9: the auctions with a winning bid.

    That is the highest of the bids before the auction expires that reach its reserve price, and
    the earliest of these. If several have the same price and time, the query may choose any of
    them: they differ in what a ``Sale`` has not.

    The query has its own kind of windows. That of an auction ends when it expires, and takes
    in the windows of all bids that begin before. A window of a bid stays open for 33 seconds, so
    that the few bids that come before their auction are not lost.
    """
    auctions, bids = [], defaultdict(list)
    for event in events:
        if isinstance(event, Auction):
            auctions.append(event)
        elif isinstance(event, Bid):
            bids[event.auction].append(event)
    sold = []
    for auction in auctions:
        valid = [
            (-bid.price, bid.date_time.micros)
            for bid in bids[auction.id]
            if bid.price >= auction.reserve and bid.date_time < auction.expires
        ]
        if valid:
            negative, at = min(valid)
            sold.append(Sale(auction, -negative, at))
    return sold


def average_prices(events: Events) -> Bag:
    """Query 4: start of a sliding window, category, and average price of what was sold in it."""
    prices = defaultdict(list)
    for sale in sales(events):
        # A group's timestamp is the last one of its window, a millisecond before its end.
        for start in sliding_windows(sale.auction.expires.micros - 1000):
            prices[start, sale.auction.category].append(sale.price)
    return Counter((*key, sum(each) / len(each)) for key, each in prices.items())


def hot_items(events: Events) -> Bag:
    """Query 5: start of a sliding window, an auction with most bids in it, and their number."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for bid in _bids(events):
        for start in sliding_windows(bid.date_time.micros):
            counts[start][bid.auction] += 1
    return Counter(
        (start, auction, count)
        for start, by_auction in counts.items()
        for auction, count in by_auction.items()
        if count == max(by_auction.values())
    )


def selling_prices(events: Events) -> dict[int, tuple[int, int, int]]:
    """Query 6: by seller, the average of the last ten prices, and the lowest and highest of all.

    The query gives a pane for each sale, or for several that arrive together, in no certain order.
    Only the last pane of a seller is certain: it averages the ten latest bids (the higher ones, of
    those at one time). Each other pane is an average of prices of this seller.
    """
    sold = defaultdict(list)
    for sale in sales(events):
        sold[sale.auction.seller].append((sale.at, sale.price))
    averages = {}
    for seller, each in sold.items():
        last = [price for _, price in sorted(each)[-_LAST_SALES:]]
        prices = [price for _, price in each]
        averages[seller] = int(sum(last) / len(last)), min(prices), max(prices)
    return averages


def highest_bids(events: Events) -> Bag:
    """Query 7: start of a fixed window, and a bid with the highest price in it."""
    by_window = defaultdict(list)
    for bid in _bids(events):
        by_window[fixed_window(bid.date_time.micros)].append(bid)
    highest: Bag = Counter()
    for start, bids in by_window.items():
        price = max(bid.price for bid in bids)
        highest.update((start, *plain(bid)) for bid in bids if bid.price == price)
    return highest


def new_sellers(events: Events) -> Bag:
    """Query 8: start of a fixed window, id and name of a new person, reserve of their auction."""
    people, auctions = {}, []
    for event in events:
        start = fixed_window(event.date_time.micros)
        if isinstance(event, Person):
            people[start, event.id] = event
        elif isinstance(event, Auction):
            auctions.append((start, event))
    return Counter(
        (start, auction.seller, people[start, auction.seller].name, auction.reserve)
        for start, auction in auctions
        if (start, auction.seller) in people
    )


class Session(NamedTuple):
    """A session of a bidder, from ``start`` to ``end``."""

    start: int
    end: int
    bids: int


def sessions(events: Events) -> dict[int, list[Session]]:
    """Query 11: by bidder, the sessions with gaps of less than ten seconds, in order."""
    found: dict[int, list[Session]] = defaultdict(list)
    for bid in _bids(events):
        at = bid.date_time.micros
        own = found[bid.bidder]
        session = own.pop() if own and own[-1].end > at else Session(at, at, 0)
        own.append(Session(session.start, at + WINDOW_S * SECOND, session.bids + 1))
    return found


def bids_by_bidder(events: Events) -> "Counter[int]":
    """Query 12: by bidder, the sum of the counts in all of its panes.

    Which bids are in which pane depends on the clock.
    """
    return Counter(bid.bidder for bid in _bids(events))


def fixed_window(at: int) -> int:
    """Return the start of the window of ten seconds."""
    return at - at % (WINDOW_S * SECOND)


def sliding_windows(at: int) -> range:
    """Return the starts of the windows of ten seconds that begin every five."""
    period = PERIOD_S * SECOND
    return range(at - at % period, at - WINDOW_S * SECOND, -period)
