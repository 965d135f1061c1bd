"""Offers of tasks to the driver."""

import threading

from beam_spark_runner.backchannel.offers import Offer, Offers


def offer(run: int) -> Offer:
    return Offer(run=run, level=1, attempt=7, rows=b"rows")


def test_offers_of_other_spark_jobs_are_dropped() -> None:
    offers = Offers()
    offers.put(offer(1))
    offers.open(2)
    offers.put(offer(1))
    offers.put(offer(2))
    assert offers.take() == offer(2)
    offers.close()
    offers.put(offer(2))
    assert offers.take() is None


def test_who_waits_is_woken_by_the_end() -> None:
    offers = Offers()
    offers.open(1)
    taken: list[Offer | None] = []
    thread = threading.Thread(target=lambda: taken.append(offers.take()))
    thread.start()
    offers.close()
    thread.join()
    assert taken == [None]
