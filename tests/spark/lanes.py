"""Windows that no runner knows: they are no intervals, and their coder is a class of the user's."""

from collections.abc import Iterable
from typing import Any

from apache_beam.coders import Coder
from apache_beam.transforms.window import BoundedWindow, NonMergingWindowFn, WindowFn
from apache_beam.utils.timestamp import Timestamp


class Lane(BoundedWindow):  # type: ignore[misc]
    """The even or the odd seconds of ten."""

    def __init__(self, begin: int, remainder: int, mark: str = "") -> None:
        super().__init__(Timestamp(begin + 10))
        self.parts = begin, remainder, mark

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lane) and other.parts == self.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def __repr__(self) -> str:
        begin, remainder, mark = self.parts
        return f"{('even', 'odd')[remainder]} of {begin}{mark}"


class LaneCoder(Coder):  # type: ignore[misc]
    def encode(self, value: Lane) -> bytes:
        return ",".join(map(str, value.parts)).encode()

    def decode(self, encoded: bytes) -> Lane:
        begin, remainder, mark = encoded.decode().split(",")
        return Lane(int(begin), int(remainder), mark)

    def is_deterministic(self) -> bool:
        return True


class Lanes(NonMergingWindowFn):  # type: ignore[misc]
    """Each element is in the lane of its second. A lane is looked up by one that ends with it."""

    coder: Coder = LaneCoder()

    def assign(self, context: WindowFn.AssignContext) -> Iterable[Lane]:
        if isinstance(context.window, Lane):
            return [context.window]
        second = int(context.timestamp.micros // 1_000_000)
        return [Lane(second // 10 * 10, second % 2)]

    def get_window_coder(self) -> Any:
        return self.coder
