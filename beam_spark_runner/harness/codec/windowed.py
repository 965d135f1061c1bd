"""Decodes windowed values; those that are in the same windows share one tuple of windows."""

from collections.abc import Callable, Sequence
from typing import Any

from apache_beam.coders import BytesCoder, Coder, WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

_TIMESTAMP_BYTES = 8
_MOST_WINDOWS = 1_000


def windowed_decoder(value_coder: Coder, window_coder: Coder) -> Callable[[bytes], WindowedValue]:
    """Return a function that decodes windowed values.

    Code that looks up a window, for example the state of a key and window, finds the same object
    without computing a hash and comparing: both take longer than to decode the whole element. If
    most elements have windows of their own, as those of sessions, decoding takes longer instead.

    Args:
        value_coder: The coder of the values.
        window_coder: The coder of their windows.
    """
    decode = WindowedValueCoder(value_coder, window_coder).get_impl().decode
    encode_header = WindowedValueCoder(BytesCoder(), window_coder).get_impl().encode_nested
    # By encoded windows and pane. Where an encoding ends is part of it: none begins with another.
    known: dict[bytes, Sequence[Any]] = {}
    end = _TIMESTAMP_BYTES  # of the latest ones

    def decode_one(coded: bytes) -> WindowedValue:
        nonlocal end
        element: WindowedValue = decode(coded)
        windows = known.get(coded[_TIMESTAMP_BYTES:end])
        if windows is not None:
            element.windows = windows
            return element
        if len(known) >= _MOST_WINDOWS:
            known.clear()
        header = encode_header(element.with_value(b""))
        end = len(header) - 1
        element.windows = known.setdefault(header[_TIMESTAMP_BYTES:end], element.windows)
        return element

    return decode_one
