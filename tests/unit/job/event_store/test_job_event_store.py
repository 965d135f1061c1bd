"""Events are recorded by a thread, for which nobody else waits, and whose failure ends no job."""

import io
import itertools
import threading
from concurrent import futures

import pytest

from beam_spark_runner.job.event_store.event_buffer import EventBuffer
from beam_spark_runner.job.event_store.event_frames import events_in
from beam_spark_runner.job.event_store.job_event_store import JobEventStore
from beam_spark_runner.job.watching.messages import MAX_BYTES, MAX_MESSAGES
from beam_spark_runner.job.watching.record import StateChange
from tests.unit.job.event_store.job_events import FilesInMemory, message, shown

NEVER_S = 1e6
MUCH = 1 << 30


class Opened:
    """A store whose files a test can look at."""

    def __init__(
        self,
        full_bytes: int = MUCH,
        interval_s: float = NEVER_S,
        error: Exception | None = None,
        most_bytes: int = MUCH,
    ) -> None:
        self.files = FilesInMemory(error)
        self.warnings: list[str] = []
        self.store = JobEventStore(
            self.files, EventBuffer(full_bytes, interval_s), self.warnings.append, most_bytes
        )

    @property
    def shown(self) -> list[str]:
        return [*map(shown, events_in(io.BytesIO(b"".join(self.files.writes))))]


def test_all_events_are_written_at_the_end() -> None:
    opened = Opened()
    opened.store.append(StateChange("RUNNING", 1.0))
    opened.store.append(message("one"))
    opened.store.close()
    assert opened.shown == ["RUNNING", "one"]
    assert len(opened.files.writes) == 1
    opened.store.append(message("too late"))
    opened.store.close()
    assert opened.shown == ["RUNNING", "one"]
    assert not opened.warnings


def test_a_flush_without_new_events_writes_nothing() -> None:
    opened = Opened(interval_s=0.0)
    assert opened.store.flush()
    opened.store.close()
    assert opened.files.writes == []


def test_events_that_are_cleared_are_not_written() -> None:
    opened = Opened()
    opened.store.append(message("one"))
    assert opened.store.flush()
    opened.store.append(message("two"))
    opened.store.close(clear=True)
    assert opened.shown == ["one"]
    assert opened.files.is_cleared
    assert not opened.store.flush()


def test_a_flush_writes_what_waits() -> None:
    opened = Opened()
    for round_ in range(3):
        opened.store.append(message(f"{round_}"))
        assert opened.store.flush(60)
        assert opened.shown == [*map(str, range(round_ + 1))]
    opened.store.close()
    assert len(opened.files.writes) == 3


def test_a_full_buffer_is_written_though_nobody_asks() -> None:
    opened = Opened(full_bytes=1_000)
    for number in range(100):
        opened.store.append(message(f"{number}"))
    assert opened.files.called.acquire(timeout=60)
    opened.store.close()
    assert opened.shown == [*map(str, range(100))]
    assert len(opened.files.writes) > 3
    assert all(len(each) < 1_100 for each in opened.files.writes)


def test_events_are_written_after_the_interval_though_nobody_asks() -> None:
    opened = Opened(interval_s=0.01)
    for calls in range(3):
        opened.store.append(message(f"{calls}"))
        assert opened.files.called.acquire(timeout=60)
    opened.store.close()
    assert opened.shown == ["0", "1", "2"]


def test_many_threads_record_each_in_its_order() -> None:
    opened = Opened(full_bytes=4_096)
    threads, events = 16, 500
    begun = threading.Barrier(threads)

    def record(thread: int) -> None:
        begun.wait(60)
        for number in range(events):
            opened.store.append(message(f"{thread} {number}"))

    with futures.ThreadPoolExecutor(threads) as pool:
        for each in [pool.submit(record, thread) for thread in range(threads)]:
            each.result(60)
    opened.store.close()
    found = [tuple(map(int, each.split())) for each in opened.shown]
    assert len(found) == threads * events
    for thread in range(threads):
        assert [number for by, number in found if by == thread] == [*range(events)]


@pytest.mark.parametrize(
    ("error", "problem"),
    [(OSError("the disk is full"), "the disk is full"), (ValueError(), "ValueError")],
    ids=["of the storage", "of another kind"],
)
def test_an_error_ends_recording_with_one_warning(error: Exception, problem: str) -> None:
    opened = Opened(error=error)
    opened.store.append(message("one"))
    assert not opened.store.flush(60)
    for _ in range(MAX_MESSAGES + 1):
        opened.store.append(message("another"))
    assert not opened.store.flush(60)
    opened.store.close()
    (warning,) = opened.warnings
    assert warning.endswith(f"will not show them: {problem}")


def test_an_error_ends_recording_at_the_end_of_the_job_too() -> None:
    opened = Opened(error=OSError("the disk is full"))
    opened.store.append(message("one"))
    opened.store.close()
    assert len(opened.warnings) == 1


def test_the_warning_of_an_error_may_itself_be_an_event() -> None:
    files = FilesInMemory(OSError("the disk is full"))
    warned = threading.Event()
    stores: list[JobEventStore] = []

    def warn(text: str) -> None:
        stores[0].append(message(text))
        warned.set()

    stores.append(JobEventStore(files, EventBuffer(1, 0.0), warn))
    stores[0].append(message("one"))
    assert warned.wait(60)
    stores[0].close()


def test_nobody_waits_for_storage_that_does_not_answer() -> None:
    opened = Opened(full_bytes=1)
    opened.files.answers.clear()
    opened.store.append(message("first"))
    assert opened.files.called.acquire(timeout=60)
    opened.store.append(message("second"))
    assert not opened.store.flush(0.0)
    opened.store.close(timeout_s=0.0)
    opened.files.answers.set()
    opened.store.close()
    assert opened.shown == ["first", "second"]


def test_of_events_that_wait_for_slow_storage_the_latest_are_recorded() -> None:
    opened = Opened(full_bytes=1)
    opened.files.answers.clear()
    opened.store.append(message("first"))
    assert opened.files.called.acquire(timeout=60)
    for number in range(MAX_MESSAGES + 7):
        opened.store.append(message(f"{number}"))
    opened.files.answers.set()
    assert opened.store.flush(60)
    first, note, *others = opened.shown
    assert first == "first"
    assert note == "7 states and messages are missing here: the storage was too slow"
    assert others == [f"{number}" for number in range(7, MAX_MESSAGES + 7)]
    opened.store.close()


def test_long_events_that_wait_for_slow_storage_do_not_use_up_the_memory() -> None:
    opened = Opened(full_bytes=1)
    opened.files.answers.clear()
    opened.store.append(message("first"))
    assert opened.files.called.acquire(timeout=60)
    long = message("x" * (MAX_BYTES // 8))
    for _ in range(20):
        opened.store.append(long)
    opened.files.answers.set()
    opened.store.close()
    assert opened.shown[1].startswith("13 states and messages are missing")
    assert len(opened.shown) == 2 + 7


def test_a_start_records_no_more_than_its_limit() -> None:
    opened = Opened(full_bytes=4_096, most_bytes=50_000)
    for number in itertools.count():
        opened.store.append(message(f"{number}"))
        if not number % 1_000 and not opened.store.flush(60):
            break
    *others, last = opened.shown
    assert others == [*map(str, range(len(others)))]
    assert last.endswith(
        "show them: since its last start, 50,000 bytes were recorded, which is the limit"
    )
    assert opened.warnings == [last]
    assert 45_000 < sum(map(len, opened.files.writes)) <= 50_000
    opened.store.append(message("too late"))
    opened.store.close()
    assert opened.shown[-1] == last


def test_an_event_that_is_larger_than_the_limit_ends_recording() -> None:
    opened = Opened(most_bytes=10_000)
    opened.store.append(message("one"))
    opened.store.append(message("x" * 20_000))
    opened.store.close()
    assert [each[:20] for each in opened.shown] == ["one", "further states and m"]
    assert len(opened.warnings) == 1
