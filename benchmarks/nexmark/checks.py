"""Compares results of the queries with the oracle, as far as Beam's model determines them.

A check returns a text that describes the differences; it is empty if there are none.
"""

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from apache_beam.testing.benchmarks.nexmark.queries.nexmark_query_util import ResultNames

from benchmarks.nexmark import oracle
from benchmarks.nexmark.events import ACTIVE_EVENTS, Workload
from benchmarks.nexmark.oracle import Bag, plain
from benchmarks.nexmark.queries import WAITING_S
from benchmarks.nexmark.results import Result

_PANE = 30  # elements; query 3 joins as soon as so many of a key are there


def undetermined(query: int, workload: Workload) -> str:
    """Return why Beam's model does not determine the results of a query; "" if it does."""
    if workload.late and query in (4, 5, 6, 7, 8, 9, 11):
        return "runners may drop late events"
    # A person has auctions for as long as they are among the active ones.
    active_s = min(workload.count, ACTIVE_EVENTS) / workload.rate
    if query == 3 and active_s > WAITING_S:
        return "people are forgotten while they still have auctions"
    return ""


def check(query: int, workload: Workload, results: Sequence[Result]) -> str:
    """Compare the results of a query with the expected ones; return the differences."""
    return _CHECKS[query](workload, results)


def differences(expected: "Counter[Any]", found: "Counter[Any]") -> str:
    """Return a text with the differences of two multisets; "" if they are equal."""
    missing, more = expected - found, found - expected
    parts = []
    for bag, what in ((missing, "missing"), (more, "too many")):
        if bag:
            example = max(bag, key=repr)
            parts.append(f"{bag.total():,} of {expected.total():,} {what}, such as {example}")
    return "; ".join(parts)


def _compared(
    expect: Callable[[oracle.Events], Bag], key: Callable[[Result], tuple[Any, ...]]
) -> Callable[[Workload, Sequence[Result]], str]:
    """Return a check that compares all results."""

    def compare(workload: Workload, results: Sequence[Result]) -> str:
        return differences(expect(workload.events()), Counter(map(key, results)))

    return compare


def _fields(*names: str) -> Callable[[Result], tuple[Any, ...]]:
    return lambda result: tuple(result.value[name] for name in names)


def _in_window(*names: str) -> Callable[[Result], tuple[Any, ...]]:
    fields = _fields(*names)
    return lambda result: (result.start, *fields(result))


def _local_items(workload: Workload, results: Sequence[Result]) -> str:
    """Query 3. A pane of a person has 30 elements, or what is there when event time ends.

    All of the last pane's auctions are joined if no pane was before: the person is in it, too. If
    one was, and had the person, Beam's model leaves open whether these auctions or the timer that
    forgets the person come first. So up to 29 of such a person's elements may be missing.
    """
    return local_items_but(_PANE - 1, workload, results)


def local_items_but(most: int, workload: Workload, results: Sequence[Result]) -> str:
    """Compare the results of query 3; of a person with 30 elements, ``most`` may be missing."""
    names = ResultNames.NAME, ResultNames.CITY, ResultNames.STATE, ResultNames.AUCTION_ID
    found = Counter(map(_fields(*names), results))
    by_person = oracle.local_items(workload.events())
    for bag in by_person.values():
        missing = bag - found
        if bag.total() + 1 >= _PANE and missing.total() <= most:
            found.update(missing)
    return differences(sum(by_person.values(), Counter()), found)


def _selling_prices(workload: Workload, results: Sequence[Result]) -> str:
    """Query 6, as far as ``oracle.selling_prices`` says what is certain."""
    expected = oracle.selling_prices(workload.events())
    panes = defaultdict(list)
    for result in results:
        panes[result.value[ResultNames.SELLER]].append(
            (result.pane, result.value[ResultNames.PRICE])
        )
    problem = differences(Counter(expected.keys()), Counter(panes.keys()))
    if problem:
        return problem
    for seller, (average, lowest, highest) in expected.items():
        own = sorted(panes[seller])
        last = [price for pane, price in own if pane == own[-1][0]]
        if average not in last:
            return f"the last pane of seller {seller} is {last[-1]:,} instead of {average:,}"
        if not all(lowest <= price <= highest for _, price in own):
            return f"a pane of seller {seller} is not an average of the prices of this seller"
    return ""


def _sessions(workload: Workload, results: Sequence[Result]) -> str:
    """Query 11: the counts of a session's panes are added up; a pane may be a part of a session."""
    by_bidder = oracle.sessions(workload.events())
    starts = {bidder: [each.start for each in own] for bidder, own in by_bidder.items()}
    found: Bag = Counter()
    for result in results:
        bidder = result.value[ResultNames.BIDDER_ID]
        at = bisect(starts.get(bidder, []), result.start) - 1
        if at < 0 or by_bidder[bidder][at].end < result.end:
            return f"bidder {bidder} has no session from {result.start} to {result.end}"
        key = bidder, by_bidder[bidder][at].start
        found[key] += result.value[ResultNames.BID_COUNT]
    expected = Counter(
        {(bidder, each.start): each.bids for bidder, own in by_bidder.items() for each in own}
    )
    return differences(expected, found)


def _bids_by_bidder(workload: Workload, results: Sequence[Result]) -> str:
    found: Counter[int] = Counter()
    for result in results:
        found[result.value[ResultNames.BIDDER_ID]] += result.value[ResultNames.BID_COUNT]
    return differences(oracle.bids_by_bidder(workload.events()), found)


def _nothing(workload: Workload, results: Sequence[Result]) -> str:
    """Query 10, whose files Beam's Python code does not write; it ends, and gives nothing."""
    return differences(Counter(), Counter((str(result.value),) for result in results))


def _sales(events: oracle.Events) -> Bag:
    return Counter((*plain(each.auction), each.price, each.at) for each in oracle.sales(events))


def _sale(result: Result) -> tuple[Any, ...]:
    auction, bid = result.value.auction, result.value.bid
    return (*plain(auction), bid.price, bid.date_time.micros)


_CHECKS: dict[int, Callable[[Workload, Sequence[Result]], str]] = {
    0: _compared(oracle.passed_through, lambda result: plain(result.value)),
    1: _compared(oracle.in_euros, lambda result: plain(result.value)),
    2: _compared(oracle.bids_for_some_auctions, _fields(ResultNames.AUCTION_ID, ResultNames.PRICE)),
    3: _local_items,
    4: _compared(oracle.average_prices, _in_window(ResultNames.CATEGORY, ResultNames.PRICE)),
    5: _compared(oracle.hot_items, _in_window(ResultNames.AUCTION_ID, ResultNames.NUM)),
    6: _selling_prices,
    7: _compared(oracle.highest_bids, lambda result: (result.start, *plain(result.value))),
    8: _compared(
        oracle.new_sellers,
        _in_window(ResultNames.ID, ResultNames.NAME, ResultNames.RESERVE),
    ),
    9: _compared(_sales, _sale),
    10: _nothing,
    11: _sessions,
    12: _bids_by_bidder,
}
