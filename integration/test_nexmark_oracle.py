"""The events of Nexmark, and what the queries have to give of them. Without Spark."""

import hashlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.benchmarks.nexmark.models.nexmark_model import Auction, Bid, Person
from apache_beam.utils.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.nexmark import oracle
from benchmarks.nexmark.checks import check, differences, local_items_but, undetermined
from benchmarks.nexmark.events import BASE_MS, CATEGORIES, FIRST_CATEGORY, FIRST_ID, Workload
from benchmarks.nexmark.queries import run_query
from benchmarks.nexmark.results import Result, read_results
from benchmarks.nexmark.source import Source
from tests.cli.programs import ROOT

WORKLOAD = Workload(count=10_000, rate=100)
SECOND = 1_000_000
ENDLESS = (-1 << 60, 1 << 60)


def person(id_: int, at: float = 0, state: str = "OR") -> Person:
    return Person(id_, f"name {id_}", "mail", "card", "Bend", state, Timestamp(at), "")


def auction(id_: int, *, at: float = 0, until: float = 9, reserve: int = 0, **of: int) -> Auction:
    seller, category = of.get("seller", 1), of.get("category", 10)
    times = Timestamp(at), Timestamp(until)
    return Auction(id_, "item", "words", 0, reserve, *times, seller, category, "")


def bid(auction_id: int, price: int, at: float = 0, bidder: int = 1) -> Bid:
    return Bid(auction_id, bidder, price, Timestamp(at), "")


# -- events


def test_an_event_depends_on_its_number_and_the_seed_alone() -> None:
    digest = hashlib.sha256()
    for event in Workload(count=1000, seed=7).events():
        digest.update(repr(oracle.plain(event)).encode())
    # In any process.
    assert digest.hexdigest()[:16] == "9fcbda2c2c354f14"
    one, other = Workload(count=1, seed=7).event(60), Workload(count=1, seed=8).event(60)
    assert oracle.plain(one) != oracle.plain(other)


def test_proportions() -> None:
    kinds = Counter(type(event) for event in WORKLOAD.events())
    assert kinds == {Person: 200, Auction: 600, Bid: 9200}


def test_ids_of_people_and_auctions_count_up() -> None:
    for kind in (Person, Auction):
        ids = [event.id for event in WORKLOAD.events() if isinstance(event, kind)]
        assert ids == list(range(FIRST_ID, FIRST_ID + len(ids)))


def test_times_are_those_of_the_rate() -> None:
    times = [event.date_time.micros for event in WORKLOAD.events()]
    assert times == [BASE_MS * 1000 + number * 10_000 for number in range(WORKLOAD.count)]


def test_some_are_hot() -> None:
    bids = [event for event in WORKLOAD.events() if isinstance(event, Bid)]
    hot = sum(each.auction % 100 == 0 for each in bids)
    assert hot / len(bids) == pytest.approx(1 / 2, abs=0.03)
    hot = sum(each.bidder % 100 == 1 for each in bids)
    assert hot / len(bids) == pytest.approx(3 / 4, abs=0.03)
    auctions = [event for event in WORKLOAD.events() if isinstance(event, Auction)]
    hot = sum(each.seller % 100 == 0 for each in auctions)
    assert hot / len(auctions) == pytest.approx(3 / 4, abs=0.06)


def test_auctions_expire_after_their_beginning() -> None:
    auctions = [event for event in WORKLOAD.events() if isinstance(event, Auction)]
    lengths = [(each.expires - each.date_time).micros / SECOND for each in auctions]
    assert min(lengths) > 0
    # Until the hundred auctions after it have come, which are 1,666 events.
    assert sum(lengths) / len(lengths) == pytest.approx(16.66, rel=0.1)
    assert {each.category for each in auctions} == {
        FIRST_CATEGORY + each for each in range(CATEGORIES)
    }
    assert all(each.reserve > each.initial_bid >= 100 for each in auctions)


def test_sizes_are_near_those_of_the_suite() -> None:
    sizes: dict[type, list[int]] = {Person: [], Auction: [], Bid: []}
    for event in WORKLOAD.events():
        sizes[type(event)].append(len(type(event).CODER.encode(event)))
    means = {kind: sum(each) / len(each) for kind, each in sizes.items()}
    assert means == {
        Person: pytest.approx(200, rel=0.2),
        Auction: pytest.approx(500, rel=0.2),
        Bid: pytest.approx(100, rel=0.2),
    }


@given(count=st.integers(1, 400), disorder=st.integers(1, 952), late=st.booleans())
def test_each_event_arrives_once(count: int, disorder: int, late: bool) -> None:
    workload = Workload(count=count, disorder=disorder, late=late)
    arrivals = [workload.arrival(position) for position in range(count)]
    assert sorted(each.number for each in arrivals) == list(range(count))
    watermarks = [each.watermark_ms for each in arrivals]
    assert watermarks == sorted(watermarks)


@given(count=st.integers(1, 400), disorder=st.integers(1, 952))
def test_the_watermark_waits(count: int, disorder: int) -> None:
    workload = Workload(count=count, disorder=disorder)
    later = float("inf")
    for position in reversed(range(count)):
        arrival = workload.arrival(position)
        later = min(later, workload.time_ms(arrival.number))
        assert arrival.watermark_ms <= later


def test_late_events_come_after_the_watermark() -> None:
    workload = Workload(count=1000, disorder=100, late=True)
    arrivals = [workload.arrival(position) for position in range(workload.count)]
    assert any(each.watermark_ms > workload.time_ms(each.number) for each in arrivals)
    assert undetermined(5, workload)
    assert not undetermined(3, workload)


def test_people_may_be_forgotten_too_early_at_low_rates() -> None:
    assert undetermined(3, Workload(count=100_000, rate=50))
    assert not undetermined(3, Workload(count=20_000, rate=50))
    assert not undetermined(3, Workload(count=1_000_000, rate=100))


@pytest.mark.parametrize("wrong", [{"rate": 9}, {"disorder": 0}, {"disorder": 953}])
def test_workloads_that_cannot_be(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=str(*wrong.values())):
        Workload(count=1, **wrong)  # type: ignore[arg-type]


# -- the oracle


@pytest.mark.parametrize("query", [0, 1, 2, 5, 7, 8, 10, 11])
def test_beams_runner_agrees(tmp_path: Path, query: int) -> None:
    """It cannot run the others: 3 and 12 because of their triggers, 4, 6, 9 for their windows."""
    workload = Workload(count=2000, rate=100)
    run_query(query, FnApiRunner(), Source(workload=workload), tmp_path, [])
    assert check(query, workload, list(read_results(tmp_path))) == ""


def test_an_auction_is_sold_to_the_earliest_of_the_highest_bids() -> None:
    events = [auction(1), bid(1, 5, at=2), bid(1, 7, at=3), bid(1, 7, at=4), bid(2, 9, at=4)]
    assert [(each.price, each.at) for each in oracle.sales(events)] == [(7, 3 * SECOND)]


def test_a_bid_before_its_auction_counts() -> None:
    assert oracle.sales([bid(1, 5), auction(1, at=1)])


@pytest.mark.parametrize(("price", "at"), [(4, 2), (5, 9), (5, 9.5)])
def test_bids_that_do_not_count(price: int, at: float) -> None:
    """Below the reserve price, or when the auction has expired."""
    assert not oracle.sales([auction(1, reserve=5, until=9), bid(1, price, at)])


def test_average_price_of_a_category() -> None:
    events = [auction(1, until=5), auction(2, until=5), auction(3, until=5.001, category=11)]
    events += [bid(1, 10), bid(2, 15), bid(3, 1)]
    assert oracle.average_prices(events) == Counter(
        [(0, 10, 12.5), (-5 * SECOND, 10, 12.5), (0, 11, 1.0), (5 * SECOND, 11, 1.0)]
    )


def test_hot_items() -> None:
    events = [bid(1, 1, at=1), bid(1, 1, at=6), bid(2, 1, at=6), bid(2, 1, at=7)]
    assert oracle.hot_items(events) == Counter(
        [(-5 * SECOND, 1, 1), (0, 1, 2), (0, 2, 2), (5 * SECOND, 2, 2)]
    )


def test_selling_prices_are_those_of_the_last_ten() -> None:
    events = [auction(each) for each in range(12)]
    events += [bid(each, 100 * each, at=each / 10) for each in range(12)]
    assert oracle.selling_prices(events) == {1: (650, 0, 1100)}


def test_highest_bids() -> None:
    events = [bid(1, 5, at=9), bid(2, 5, at=9.999), bid(3, 4, at=9), bid(1, 1, at=10)]
    found = [(start, each[1]) for start, *each in oracle.highest_bids(events)]
    assert sorted(found) == [(0, 1), (0, 2), (10 * SECOND, 1)]


def test_new_sellers_sell_in_the_window_in_which_they_are_new() -> None:
    events = [person(1, at=9), auction(1, at=0, reserve=7), auction(2, at=10), person(2)]
    assert oracle.new_sellers(events) == Counter([(0, 1, "name 1", 7)])


def test_a_session_ends_after_ten_seconds() -> None:
    events = [bid(1, 1, at=0), bid(1, 1, at=9.999), bid(1, 1, at=19.999)]
    first, second = oracle.sessions(events)[1]
    assert first == (0, 19_999_000, 2)
    assert second == (19_999_000, 29_999_000, 1)


def test_local_items_need_state_and_category() -> None:
    events = [person(1), person(2, state="WA"), auction(1), auction(2, category=11)]
    events += [auction(3, seller=2), auction(4)]
    assert oracle.local_items(events) == {
        1: Counter([("name 1", "Bend", "OR", 1), ("name 1", "Bend", "OR", 4)])
    }


# -- checks


def test_differences_name_an_example() -> None:
    assert differences(Counter("aab"), Counter("abb")) == (
        "1 of 3 missing, such as a; 1 of 3 too many, such as b"
    )
    assert differences(Counter("ab"), Counter("ba")) == ""


def results(values: Sequence[Any], window: tuple[int, int] = ENDLESS) -> list[Result]:
    return [Result(value, *window, pane) for pane, value in enumerate(values)]


def of_bidders() -> "Counter[int]":
    return Counter(event.bidder for event in WORKLOAD.events() if isinstance(event, Bid))


def test_counts_of_bidders_in_any_panes() -> None:
    counts = of_bidders()
    whole = [{"bidder_id": bidder, "bid_count": count} for bidder, count in counts.items()]
    parts = [{"bidder_id": bidder, "bid_count": 1} for bidder in counts.elements()]
    assert check(12, WORKLOAD, results(whole)) == check(12, WORKLOAD, results(parts)) == ""
    assert "missing" in check(12, WORKLOAD, results(parts[1:]))
    assert "too many" in check(12, WORKLOAD, results([*parts, parts[0]]))


def test_parts_of_sessions_are_added_up() -> None:
    found = []
    for bidder, sessions in oracle.sessions(WORKLOAD.events()).items():
        for each in sessions:
            first = {"bidder_id": bidder, "bid_count": each.bids - 1}
            found += results([first], (each.start, each.end - 1))
            found += results([{"bidder_id": bidder, "bid_count": 1}], each[:2])
    assert check(11, WORKLOAD, found) == ""
    assert "missing" in check(11, WORKLOAD, found[:-1])
    wide = found[0]._replace(start=found[0].start - 1)
    assert "has no session" in check(11, WORKLOAD, [wide, *found[1:]])


def test_the_last_pane_of_a_seller_has_to_be_right() -> None:
    expected = oracle.selling_prices(WORKLOAD.events())
    panes = [
        result
        for seller, (average, lowest, highest) in expected.items()
        for result in results(
            [{"seller": seller, "price": price} for price in (highest, lowest, average)]
        )
    ]
    assert check(6, WORKLOAD, panes) == ""
    turned = [each._replace(pane=-each.pane) for each in panes]
    assert "the last pane of seller" in check(6, WORKLOAD, turned)
    assert "missing" in check(6, WORKLOAD, panes[3:])
    seller, (_, _, highest) = next(iter(expected.items()))
    above = Result({"seller": seller, "price": highest + 1}, *ENDLESS, -1)
    assert "is not an average" in check(6, WORKLOAD, [*panes, above])


def test_local_items_of_few_elements_have_to_be_there() -> None:
    names = "name", "city", "state", "auction_id"
    by_person = oracle.local_items(WORKLOAD.events())
    sizes = {id_: bag.total() for id_, bag in by_person.items()}
    most, few = max(sizes, key=sizes.__getitem__), min(sizes, key=sizes.__getitem__)
    assert sizes[most] > 29 > sizes[few]

    def but(left_out: int, count: int) -> list[Result]:
        rows = [
            row
            for id_, bag in by_person.items()
            for row in list(bag.elements())[count if id_ == left_out else 0 :]
        ]
        return results([dict(zip(names, row, strict=True)) for row in rows])

    assert check(3, WORKLOAD, but(few, 0)) == ""
    assert check(3, WORKLOAD, but(most, 29)) == ""
    assert "missing" in check(3, WORKLOAD, but(most, 30))
    assert "missing" in check(3, WORKLOAD, but(few, 1))
    assert "missing" in local_items_but(0, WORKLOAD, but(most, 1))


def test_query_10_gives_nothing() -> None:
    assert check(10, WORKLOAD, []) == ""
    assert "too many" in check(10, WORKLOAD, results([1]))


# -- the command


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.nexmark", "--runners", "fn_api", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
    )


def test_only_right_results_have_figures() -> None:
    """Beam's runner drops the last panes of query 3."""
    ended = command("--events", "1000", "--rate", "100", "--", "0", "3")
    _, _, _, _, zero, three, _, note = ended.stdout.splitlines()
    assert re.fullmatch(r"\| 0 \| [\d,]+ \|", zero)
    assert three == "| 3 | no |"
    assert "query 3 on fn_api" in note
    assert "missing" in note
    assert ended.returncode == 1


def test_a_query_has_a_limit() -> None:
    ended = command("--events", "1000", "--limit", "0.001", "--", "0", "1")
    assert "query 0 on fn_api: not done after 0.001 s" in ended.stdout
    # In a new process.
    assert re.search(r"\| 1 \| [\d,]+ \|", ended.stdout)
