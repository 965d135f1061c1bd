"""Beam's varints: seven bits per byte, lowest first; all bytes but the last have the top bit."""

_MAX_BYTES = 10  # of 64 bits


def coded_varint(number: int) -> bytes:
    """Encode a number that is not negative."""
    coded = bytearray()
    while number > 0x7F:
        coded.append(number & 0x7F | 0x80)
        number >>= 7
    coded.append(number)
    return bytes(coded)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode the number that begins at ``position``.

    Returns:
        The number, unsigned, and the position after it.

    Raises:
        ValueError: The varint is cut off, or has more than 64 bits.
    """
    number = shift = 0
    for place in range(position, min(position + _MAX_BYTES, len(data))):
        byte = data[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80 and number < 1 << 64:
            return number, place + 1
        shift += 7
    raise ValueError("a varint is cut off, or has more than 64 bits")
