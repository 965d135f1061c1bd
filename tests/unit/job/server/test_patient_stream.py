"""A stream of a client that falls silent: it ends, and holds no thread."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from beam_spark_runner.job.server.patient_stream import PatientStream
from beam_spark_runner.job.server.refusals import SilentClientError

SOON_S = 60.0


def test_messages_arrive_one_at_a_time_as_they_are_wanted() -> None:
    taken: list[int] = []

    def count() -> Iterator[int]:
        for number in range(3):
            taken.append(number)
            yield number

    stream = PatientStream(count(), lambda: None, SOON_S)
    assert next(stream) == 0
    assert taken == [0]  # the rest waits, as gRPC's flow control wants it
    assert list(stream) == [1, 2]


def test_what_the_stream_raises_is_raised() -> None:
    def fail(_: int) -> Any:
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError, match="gone"):
        next(PatientStream(map(fail, range(1)), lambda: None, SOON_S))


def test_a_client_that_is_silent_for_too_long_is_an_error() -> None:
    ends = threading.Event()

    def say_nothing() -> Iterator[Any]:
        ends.wait(SOON_S)
        yield from ()

    stream = PatientStream(say_nothing(), lambda: None, 0.01)
    with pytest.raises(SilentClientError, match=r"sent nothing for 0\.01 s"):
        next(stream)
    ends.set()


def test_a_client_that_receives_nothing_is_cut_off() -> None:
    cancelled = threading.Event()
    stream = PatientStream(iter(()), cancelled.set, 0.01)
    sending = stream.send(iter(["a request"]))
    assert next(sending) == "a request"  # gRPC sends it for as long as the generator is not resumed
    assert cancelled.wait(SOON_S)
    stream.close()
