"""Warnings of Python in a worker, given again by the program that runs the pipeline."""

import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_job_api_pb2

from beam_spark_runner.backchannel.log_lines import LogHandler, category_of, redirect_warnings
from beam_spark_runner.job.watching.messages import SDK_LOGGER, JobMessages
from tests.unit.backchannel.served import entry


class SlowWarning(RuntimeWarning):
    """One of a user's module."""


class Lines:
    """Receives the messages of a worker."""

    def __init__(self) -> None:
        self.entries: list[beam_fn_api_pb2.LogEntry] = []

    def log(self, entry: beam_fn_api_pb2.LogEntry) -> None:
        self.entries.append(beam_fn_api_pb2.LogEntry.FromString(entry.SerializeToString()))

    def leave_out(self, lines: int) -> None:
        raise AssertionError("nothing is too much")


@pytest.fixture
def worker() -> Iterator[Lines]:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        lines = Lines()
        redirect_warnings(LogHandler(lines).warn)
        yield lines


def test_text_place_and_category_cross(worker: Lines) -> None:
    warnings.warn("row by row", SlowWarning, stacklevel=1)
    (entry,) = worker.entries
    assert category_of(entry) is SlowWarning
    assert entry.log_location.rpartition(":")[0] == __file__
    messages = JobMessages({})
    with pytest.warns(SlowWarning, match="^row by row$") as given:
        messages.take_line("worker-1", entry)
    assert (given[0].filename, given[0].lineno) == (
        __file__,
        int(entry.log_location.rpartition(":")[2]),
    )
    (kept,) = messages.log.events()
    assert kept.importance == beam_job_api_pb2.JobMessage.JOB_MESSAGE_WARNING
    assert kept.message_text == "row by row [worker-1]"


@pytest.mark.parametrize(
    "name", ["nobody.has.Imported", "os.system", "builtins.ValueError", "Nothing", "", 7]
)
def test_a_category_that_is_none_here(worker: Lines, name: Any) -> None:
    warnings.warn("row by row", SlowWarning, stacklevel=1)
    (entry,) = worker.entries
    entry.custom_data["beam_spark_runner:warning"] = name
    assert category_of(entry) is UserWarning


def test_a_line_is_no_warning() -> None:
    assert category_of(beam_fn_api_pb2.LogEntry(message="hello")) is None


def test_where_warnings_are_errors_it_is_a_line(
    worker: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    warnings.warn("row by row", SlowWarning, stacklevel=1)
    with warnings.catch_warnings(), caplog.at_level(logging.WARNING, SDK_LOGGER):
        warnings.simplefilter("error")
        JobMessages({}).take_line("worker-1", worker.entries[0])
    assert "row by row [worker-1]" in caplog.text


def test_a_job_shows_it_once(worker: Lines) -> None:
    warnings.warn("row by row", SlowWarning, stacklevel=1)
    messages = JobMessages({})
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("default")
        for name in ("worker-1", "worker-2"):
            messages.take_line(name, worker.entries[0])
    assert len(given) == 1
    assert len(messages.log.events()) == 2


def test_a_server_logs_it_with_the_id_of_the_job(
    worker: Lines, caplog: pytest.LogCaptureFixture
) -> None:
    warnings.warn("row by row", SlowWarning, stacklevel=1)
    with warnings.catch_warnings(record=True) as given, caplog.at_level(logging.INFO, SDK_LOGGER):
        JobMessages({}, job_id="count_1").take_line("worker-1", worker.entries[0])
    assert not given
    assert caplog.messages == ["count_1: row by row [worker-1]"]


def test_lines_may_have_times_that_do_not_exist() -> None:
    messages = JobMessages({})
    for seconds, nanos in ((0, -5), (1_700_000_000_000, 0)):
        line = entry("line")
        line.timestamp.seconds, line.timestamp.nanos = seconds, nanos
        messages.take_line("worker-1", line)
    assert [each.message_text for each in messages.log.events()] == ["line [worker-1]"] * 2
    assert all(each.time for each in messages.log.events())
