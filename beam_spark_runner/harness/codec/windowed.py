"""Decodes windowed values; those in a row that are in the same windows share these windows."""

from collections.abc import Callable, Sequence
from typing import Any

from apache_beam.coders import BytesCoder, Coder, WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

_TIMESTAMP_BYTES = 8
_NONE = b"\xff\xff\xff\xff"  # no element has so many windows


def windowed_decoder(value_coder: Coder, window_coder: Coder) -> Callable[[bytes], WindowedValue]:
    """Return a function that decodes windowed values.

    What looks windows up by key, for example the state of a key and window, finds the same object
    without computing a hash and comparing: both take longer than to decode the whole element. Not
    for elements most of which have windows of their own, as those of sessions.

    Args:
        value_coder: of the values.
        window_coder: of their windows.
    """
    decode = WindowedValueCoder(value_coder, window_coder).get_impl().decode
    encode_header = WindowedValueCoder(BytesCoder(), window_coder).get_impl().encode_nested
    windows: Sequence[Any] = ()
    coded_windows = _NONE  # and the pane

    def decode_one(coded: bytes) -> WindowedValue:
        nonlocal windows, coded_windows
        element: WindowedValue = decode(coded)
        if coded.startswith(coded_windows, _TIMESTAMP_BYTES):
            element.windows = windows
        else:
            windows = element.windows
            coded_windows = encode_header(element.with_value(b""))[_TIMESTAMP_BYTES:-1]
        return element

    return decode_one
