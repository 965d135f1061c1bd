"""Records are due when there are enough, or when the first one is old enough."""

import pytest

from beam_spark_runner.job.event_store.event_buffer import EventBuffer


def test_an_empty_buffer_is_never_due() -> None:
    buffer = EventBuffer(10, 1.0)
    assert buffer.wait_s(1_000.0) is None
    assert buffer.is_empty
    assert buffer.take_all() == b""


def test_records_are_due_an_interval_after_the_first_one() -> None:
    buffer = EventBuffer(10, 1.0)
    buffer.add(b"one", 5.0)
    assert buffer.wait_s(5.0) == 1.0
    buffer.add(b"two", 5.75)
    assert buffer.wait_s(5.75) == 0.25
    assert buffer.wait_s(6.0) == 0.0
    assert buffer.wait_s(7.0) == 0.0
    assert buffer.take_all() == b"onetwo"
    assert buffer.wait_s(7.0) is None
    buffer.add(b"three", 8.0)
    assert buffer.wait_s(8.0) == 1.0


@pytest.mark.parametrize("second", [b"12345", b"1234567890"], ids=["as many", "more"])
def test_a_full_buffer_is_due_at_once(second: bytes) -> None:
    buffer = EventBuffer(10, 1_000.0)
    buffer.add(b"12345", 0.0)
    assert (buffer.is_full, buffer.wait_s(0.0)) == (False, 1_000.0)
    buffer.add(second, 0.0)
    assert (buffer.is_full, buffer.wait_s(0.0)) == (True, 0.0)
    buffer.take_all()
    assert (buffer.is_full, buffer.wait_s(0.0)) == (False, None)
