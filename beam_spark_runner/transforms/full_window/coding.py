"""Codes elements with their timestamp, windows and pane, for sorters and for groupings.

Pickled by value, see ``functions``.
"""

from typing import Any

from apache_beam.coders import BytesCoder, Coder, WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue


class ElementCodec:
    """Encodes and decodes the elements of a collection.

    Args:
        coder: The coder of the values.
        window_coder: The coder of their windows.
    """

    def __init__(self, coder: Coder, window_coder: Coder) -> None:
        self._coder = coder
        self._windowed_coder = WindowedValueCoder(coder, window_coder)
        self._origin_coder = WindowedValueCoder(BytesCoder(), window_coder)

    def setup(self) -> None:
        """Get the implementations of the coders, which are not pickled with them."""
        value, windowed = self._coder.get_impl(), self._windowed_coder.get_impl()
        self.encode_value, self.decode_value = value.encode, value.decode
        self.encode_one, self.decode = windowed.encode, windowed.decode
        self._origin = self._origin_coder.get_impl()

    def encode(self, value: Any, origin: WindowedValue) -> list[bytes]:
        """Encode an element once for each of its windows.

        Args:
            value: The value of the element.
            origin: The windowed value with its timestamp, windows and pane.
        """
        if len(origin.windows) == 1:
            return [self.encode_one(origin.with_value(value))]
        time, pane = origin.timestamp, origin.pane_info
        return [
            self.encode_one(WindowedValue(value, time, (window,), pane))
            for window in origin.windows
        ]

    def encode_origin(self, origin: WindowedValue) -> bytes:
        """Encode the timestamp, windows and pane of an element, without its value."""
        coded: bytes = self._origin.encode(origin.with_value(b""))
        return coded

    def decode_origin(self, coded: bytes) -> WindowedValue:
        """Decode the result of ``encode_origin``; the value of the result has no meaning."""
        return self._origin.decode(coded)
