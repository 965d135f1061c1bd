"""Readers of a job's events see all of them, in order, whenever they come."""

import threading
from concurrent import futures

from beam_spark_runner.job.watching.event_log import EventLog


def test_a_reader_after_the_end_sees_all_events() -> None:
    log: EventLog[int] = EventLog()
    for event in range(3):
        log.append(event)
    log.close()
    assert list(log.follow()) == [0, 1, 2]
    assert log.events() == (0, 1, 2)


def test_readers_follow_while_events_are_appended() -> None:
    log: EventLog[int] = EventLog()
    log.append(0)
    early = log.follow()
    assert next(early) == 0
    with futures.ThreadPoolExecutor(4) as threads:
        begun = threading.Barrier(5)

        def read() -> list[int]:
            begun.wait(60)
            return list(log.follow())

        readers = [threads.submit(read) for _ in range(4)]
        begun.wait(60)
        for event in range(1, 1_000):
            log.append(event)
        log.close()
        for reader in readers:
            assert reader.result(60) == [*range(1_000)]
    assert list(early) == [*range(1, 1_000)]


def test_a_reader_waits_for_the_next_event() -> None:
    log: EventLog[str] = EventLog()
    with futures.ThreadPoolExecutor(1) as thread:
        reader = thread.submit(lambda: next(log.follow()))
        log.append("at last")
        assert reader.result(60) == "at last"


def test_the_oldest_events_give_way() -> None:
    log: EventLog[int] = EventLog(max_events=2)
    reader = log.follow()
    log.append(0)
    assert next(reader) == 0
    for event in range(1, 6):
        log.append(event)
    log.close()
    assert list(reader) == [4, 5]
    assert list(log.follow()) == [4, 5]


def test_a_log_that_is_closed_and_empty() -> None:
    log: EventLog[int] = EventLog()
    log.close()
    assert list(log.follow()) == []


def test_a_log_hands_its_events_on() -> None:
    all_events: EventLog[object] = EventLog()
    numbers: EventLog[int] = EventLog(also=all_events)
    texts: EventLog[str] = EventLog(max_events=1, also=all_events)
    numbers.append(1)
    texts.append("a")
    texts.append("b")
    numbers.append(2)
    numbers.close()
    texts.close()
    all_events.append("still open")
    all_events.close()
    assert list(all_events.follow()) == [1, "a", "b", 2, "still open"]


def test_a_reader_that_has_gone_is_let_go() -> None:
    log: EventLog[int] = EventLog()
    log.append(0)
    gone = threading.Event()
    with futures.ThreadPoolExecutor(1) as thread:
        reader = log.follow(lambda: not gone.is_set())
        assert next(reader) == 0
        rest = thread.submit(list, reader)
        gone.set()
        log.wake()
        assert rest.result(60) == []


def test_the_latest_events_are_kept_up_to_a_size() -> None:
    log: EventLog[str] = EventLog(max_events=3, max_bytes=10, size_of=len)
    for event in ("aaaa", "bbbb", "cc", "d"):
        log.append(event)
    assert (log.events(), log.size_bytes) == (("bbbb", "cc", "d"), 7)
    log.append("e" * 8)
    assert (log.events(), log.size_bytes) == (("d", "e" * 8), 9)
    log.append("f" * 20)
    assert (log.events(), log.size_bytes) == (("f" * 20,), 20)
    log.close()
    assert list(log.follow()) == ["f" * 20]
