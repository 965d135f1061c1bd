"""What was recorded is read again, up to the first record that is incomplete or wrong."""

import io
import struct
import tracemalloc
import zlib

import pytest
from apache_beam.portability.api import beam_job_api_pb2
from hypothesis import given
from hypothesis import strategies as st

from beam_spark_runner.job.event_store.event_frames import (
    Event,
    WrongRecordError,
    events_in,
    frame,
)
from beam_spark_runner.job.watching.record import TRANSITIONS, StateChange
from tests.unit.job.event_store.job_events import message

STATES = sorted({state for states in TRANSITIONS.values() for state in states})
EVENTS = st.one_of(
    st.builds(StateChange, st.sampled_from(STATES), st.floats(0, 1e10)),
    st.builds(
        beam_job_api_pb2.JobMessage,
        message_id=st.text(),
        time=st.text(),
        importance=st.sampled_from(beam_job_api_pb2.JobMessage.MessageImportance.values()),
        message_text=st.text(),
    ),
)
THREE: list[Event] = [StateChange("RUNNING", 1.5), message("one"), message("two")]


def read(content: bytes) -> tuple[list[Event], str]:
    """Return the events of a file, and why they end before its end."""
    events: list[Event] = []
    try:
        for event in events_in(io.BytesIO(content)):
            events.append(event)
    except WrongRecordError as error:
        return events, str(error)
    return events, ""


@given(st.lists(EVENTS))
def test_events_are_read_as_they_were_recorded(events: list[Event]) -> None:
    assert read(b"".join(map(frame, events))) == (events, "")


def test_a_file_that_is_cut_off_anywhere_has_the_events_before() -> None:
    frames = [*map(frame, THREE)]
    content = b"".join(frames)
    ends = [sum(map(len, frames[:count])) for count in range(len(frames) + 1)]
    for size in range(len(content) + 1):
        events, problem = read(content[:size])
        whole = sum(end <= size for end in ends[1:])
        assert events == THREE[:whole]
        assert bool(problem) == (size not in ends)


def test_whatever_byte_is_wrong_the_events_before_it_are_read() -> None:
    frames = [*map(frame, THREE)]
    second, third = len(frames[0]), len(frames[0]) + len(frames[1])
    for position in range(second, third):
        content = bytearray(b"".join(frames))
        content[position] ^= 0x10
        events, problem = read(bytes(content))
        assert events == THREE[:1]
        assert problem


def test_a_block_that_is_missing_ends_the_file() -> None:
    content = b"".join(map(frame, [message(f"number {each}") for each in range(1_000)]))
    events, problem = read(content[:4_096] + content[8_192:])
    assert 0 < len(events) < 100
    assert problem


def test_a_block_that_the_disk_has_not_stored_ends_the_file() -> None:
    """After a crash of the machine, a file may have its length, with zeros in place of data."""
    events, problem = read(frame(THREE[0]) + bytes(4_096))
    assert events == THREE[:1]
    assert problem


class MeasuredFile(io.BytesIO):
    """Remembers the longest read."""

    longest = 0

    def read(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        assert size >= 0
        self.longest = max(self.longest, size)
        return super().read(size)


@pytest.mark.parametrize("length", [1_000, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
def test_nothing_is_allocated_for_a_length_beyond_the_end(length: int) -> None:
    bogus = struct.pack("<HII", 2, length, 0) + bytes(100)
    file = MeasuredFile(frame(THREE[0]) + bogus)
    tracemalloc.start()
    try:
        found = events_in(file)
        assert next(found) == THREE[0]
        with pytest.raises(WrongRecordError, match="of which 100 are there"):
            next(found)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
    assert file.longest < 100


def test_what_is_appended_while_a_file_is_read_is_for_another_time() -> None:
    file = io.BytesIO(frame(THREE[0]) + frame(THREE[1]))
    found = events_in(file)
    assert next(found) == THREE[0]
    position = file.tell()
    file.seek(0, io.SEEK_END)
    file.write(frame(THREE[2])[:-1])
    file.seek(position)
    assert list(found) == THREE[1:2]


def rewritten(kind: int, content: bytes) -> bytes:
    """Return a record with a right checksum."""
    beginning = struct.pack("<HI", kind, len(content))
    return beginning + struct.pack("<I", zlib.crc32(beginning + content)) + content


def test_records_of_other_versions_are_left_out() -> None:
    content = rewritten(77, b"what a later version records") + frame(THREE[1])
    assert read(content) == ([THREE[1]], "")


@pytest.mark.parametrize(
    ("kind", "content"),
    [(1, b"\x0a\x04GONE"), (1, b"\x0a\xff"), (2, b"\xff"), (2, b"\x0a\x01\xff")],
    ids=["no state", "no record of a state", "no record of a message", "no message"],
)
def test_content_that_means_nothing_ends_the_file(kind: int, content: bytes) -> None:
    events, problem = read(frame(THREE[0]) + rewritten(kind, content) + frame(THREE[1]))
    assert events == THREE[:1]
    assert problem


def test_the_form_of_a_record_is_permanent() -> None:
    """Earlier versions have written these, and later ones must read them."""
    assert frame(StateChange("DONE", 2.0)) == bytes.fromhex(
        "01000f000000c518ebed0a04444f4e45110000000000000040"
    )
    small = beam_job_api_pb2.JobMessage(message_id="1", message_text="one")
    assert frame(small) == bytes.fromhex("02000a00000061c9dec10a080a013122036f6e65")
