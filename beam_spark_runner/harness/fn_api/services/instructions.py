"""Ids of instructions, which distinguish a late response from one to an unknown instruction."""

import itertools
import threading


class InstructionIds:
    """Numbers the instructions of one SDK harness. Threads: any."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._last = 0
        self._lock = threading.Lock()

    def next(self) -> str:
        """Return a new id for an instruction."""
        with self._lock:
            self._last = next(self._numbers)
            return str(self._last)

    def was_issued(self, id_: str) -> bool:
        """Whether an instruction had this id; it may have ended long ago."""
        if not (id_.isascii() and id_.isdigit()) or id_[0] == "0":
            return False
        # The length first: Python refuses to parse a number of thousands of digits.
        return len(id_) <= len(str(self._last)) and int(id_) <= self._last
