"""Events of a job as records of a file: the number of their kind, length, checksum and content.

A server may be killed while it writes, so that a file ends anywhere. Its records are read up to the
first one that is incomplete or wrong.
"""

import io
import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, TypeAlias

from apache_beam.portability.api import beam_job_api_pb2
from google.protobuf.message import DecodeError

from beam_spark_runner._generated.job_events_pb2 import MessageRecord, StateRecord
from beam_spark_runner.job.watching.record import TRANSITIONS, StateChange

Event: TypeAlias = StateChange | beam_job_api_pb2.JobMessage

# The numbers are permanent: files of other versions have them. Zero is none of them.
_STATE, _MESSAGE = 1, 2
# Kind and length; then the checksum of both and the content, so that no zeros are a record.
_BEGINNING = struct.Struct("<HI")
_CHECKSUM = struct.Struct("<I")
_HEADER_BYTES = _BEGINNING.size + _CHECKSUM.size
_STATES = frozenset[str]().union(*TRANSITIONS.values())


class WrongRecordError(Exception):
    """A record is incomplete, or its content is not what was written."""


def frame(event: Event) -> bytes:
    """Return an event as a record."""
    if isinstance(event, StateChange):
        kind = _STATE
        content = StateRecord(state=event.state, at_s=event.at_s).SerializeToString()
    else:
        kind = _MESSAGE
        content = MessageRecord(message=event.SerializeToString()).SerializeToString()
    beginning = _BEGINNING.pack(kind, len(content))
    return beginning + _CHECKSUM.pack(_checksum(beginning, content)) + content


def events_in(file: BinaryIO) -> Iterator[Event]:
    """Yield the events of a file, from its beginning. Kinds that are not known are left out.

    Nothing is read, and no memory allocated, for a length beyond the end of the file.

    Args:
        file: A seekable file. What is appended to it meanwhile is not read.

    Raises:
        WrongRecordError: After the events before the first wrong record.
        OSError: The file cannot be read.
    """
    remaining_bytes = file.seek(0, io.SEEK_END)
    file.seek(0)
    while remaining_bytes:
        header = file.read(min(_HEADER_BYTES, remaining_bytes))
        remaining_bytes -= _HEADER_BYTES
        if len(header) < _HEADER_BYTES:
            raise WrongRecordError("it ends within the header of a record")
        beginning = header[: _BEGINNING.size]
        kind, length = _BEGINNING.unpack(beginning)
        if length > remaining_bytes:
            raise WrongRecordError(
                f"a record of {length:,} bytes, of which {remaining_bytes:,} are there"
            )
        content = file.read(length)
        remaining_bytes -= length
        (checksum,) = _CHECKSUM.unpack_from(header, _BEGINNING.size)
        if checksum != _checksum(beginning, content):
            raise WrongRecordError("the checksum of a record is wrong")
        event = _event_of(kind, content)
        if event is not None:
            yield event


def _event_of(kind: int, content: bytes) -> Event | None:
    try:
        if kind == _STATE:
            record = StateRecord.FromString(content)
            if record.state not in _STATES:
                raise WrongRecordError(f"{record.state!r:.100} is not a state")
            return StateChange(record.state, record.at_s)
        if kind == _MESSAGE:
            message = MessageRecord.FromString(content).message
            return beam_job_api_pb2.JobMessage.FromString(message)
    except DecodeError as error:
        raise WrongRecordError(f"the content of a record is wrong: {error}") from error
    return None


def _checksum(beginning: bytes, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(beginning))
