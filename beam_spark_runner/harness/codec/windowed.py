"""Decodes windowed values so that elements of one window share its object, and encodes windows."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from apache_beam.coders import BytesCoder, Coder, WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.core.time import last_moment

_TIMESTAMP_BYTES = 8
_MAX_WINDOWS = 1_000


def windowed_decoder(value_coder: Coder, window_coder: Coder) -> Callable[[bytes], WindowedValue]:
    """Return a function that decodes windowed values.

    Code that looks up a window, for example the state of a key and window, finds the same object
    without computing a hash and comparing: both take longer than to decode the whole element. If
    most elements have different windows, as those of sessions, decoding takes longer instead.

    Args:
        value_coder: The coder of the values.
        window_coder: The coder of their windows.
    """
    decode = WindowedValueCoder(value_coder, window_coder).get_impl().decode
    encode_header = WindowedValueCoder(BytesCoder(), window_coder).get_impl().encode_nested
    # By encoded windows and pane. Where an encoding ends is part of it: none begins with another.
    cache: dict[bytes, Sequence[Any]] = {}
    end = _TIMESTAMP_BYTES  # of the latest ones

    def decode_one(coded: bytes) -> WindowedValue:
        nonlocal end
        element: WindowedValue = decode(coded)
        windows = cache.get(coded[_TIMESTAMP_BYTES:end])
        if windows is not None:
            element.windows = windows
            return element
        if len(cache) >= _MAX_WINDOWS:
            cache.clear()
        header = encode_header(element.with_value(b""))
        end = len(header) - 1
        element.windows = cache.setdefault(header[_TIMESTAMP_BYTES:end], element.windows)
        return element

    return decode_one


class KnownWindow(NamedTuple):
    """A window, and what takes longer to compute than to look up.

    Attributes:
        window: The window.
        coded: Its encoding.
        last_us: Its largest timestamp, in microseconds.
    """

    window: Any
    coded: bytes
    last_us: int


class KnownWindows:
    """Encodes and decodes windows, and remembers them by their objects.

    Windows that ``decode`` or one ``windowed_decoder`` returns are mostly the same objects for
    many keys.

    Args:
        coder: The coder of the windows.
    """

    def __init__(self, coder: Coder) -> None:
        self._encode, self._decode = coder.encode, coder.decode
        # An entry refers to its window, so that no other object gets the same id meanwhile.
        self._by_id: dict[int, KnownWindow] = {}
        self._by_code: dict[bytes, Any] = {}

    def entry_of(self, window: Any) -> KnownWindow:
        """Return the entry of a window."""
        entry = self._by_id.get(id(window))
        if entry is None:
            if len(self._by_id) >= _MAX_WINDOWS:
                self._by_id.clear()
            last_us = last_moment(window.max_timestamp().micros)
            entry = KnownWindow(window, self._encode(window), last_us)
            self._by_id[id(window)] = entry
        return entry

    def last_us(self, window: Any) -> int:
        """Return the largest timestamp of a window, in microseconds."""
        return self.entry_of(window).last_us

    def decode(self, coded: bytes) -> Any:
        """Return the window of an encoding."""
        window = self._by_code.get(coded)
        if window is None:
            if len(self._by_code) >= _MAX_WINDOWS:
                self._by_code.clear()
            window = self._by_code[coded] = self._decode(coded)
        return window
