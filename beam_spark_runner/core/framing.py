"""Messages in a stream of bytes: each is prefixed with its length, four bytes, big-endian."""

import struct
from collections.abc import Iterator

MAX_FRAME_BYTES = 64 << 20

_LENGTH = struct.Struct(">I")


class FrameTooLongError(ValueError):
    """A message is longer than allowed, so that the stream is probably something else."""


def framed(message: bytes) -> bytes:
    """Return a message with its length prefix."""
    return _LENGTH.pack(len(message)) + message


class Unframer:
    """Splits a stream, which may arrive in any pieces, into messages.

    Attributes:
        most_bytes: The most bytes of a message. It may be changed between two messages.

    Example:
        From "2ab0" (with lengths of one digit), ``feed`` yields b"ab" and b"".
    """

    def __init__(self, most_bytes: int = MAX_FRAME_BYTES) -> None:
        self.most_bytes = most_bytes
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the messages that end in ``piece``; the iterator must be exhausted.

        Raises:
            FrameTooLongError: A message is too long. The rest of the stream cannot be read.
        """
        self._rest += piece
        while len(self._rest) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._rest)
            if length > self.most_bytes:
                raise FrameTooLongError(
                    f"a message of {length} bytes exceeds the limit of {self.most_bytes}"
                )
            end = _LENGTH.size + length
            if end > len(self._rest):
                return
            message = bytes(self._rest[_LENGTH.size : end])
            del self._rest[:end]
            yield message
