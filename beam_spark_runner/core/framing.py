"""Messages in a stream of bytes: each has its length in front, four bytes, big-endian."""

import struct
from collections.abc import Iterator

MAX_FRAME_BYTES = 64 << 20

_LENGTH = struct.Struct(">I")


class FrameTooLongError(ValueError):
    """The stream is not what it should be: nobody sends messages of that length."""


def framed(message: bytes) -> bytes:
    """Return the message as it stands in a stream."""
    return _LENGTH.pack(len(message)) + message


class Unframer:
    """Cuts a stream into its messages, in whatever pieces it comes.

    Attributes:
        most_bytes: of a message. May be changed between two messages.

    Example:
        of "2ab0" (with lengths of one digit) ``feed`` yields b"ab" and b"".
    """

    def __init__(self, most_bytes: int = MAX_FRAME_BYTES) -> None:
        self.most_bytes = most_bytes
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield the messages that end in ``piece``; all of them must be taken.

        Raises:
            FrameTooLongError: one is longer than it may be. The stream is of no more use.
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
