"""State objects of DoFns in the embedded harness: bags, and what consists of one value."""

import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.worker import bundle_processor
from apache_beam.transforms import core, userstate
from typing_extensions import override


class Piled(Protocol):
    """Has the approximate size of values that were added since the last write."""

    piled_bytes: int


class KeyBag(bundle_processor.SynchronousBagRuntimeState):  # type: ignore[misc]
    """Beam's bag state, with a lazy StateKey, and without reads if it is new.

    Args:
        piled: Counts the bytes of values that are added.
        handler: Answers state requests.
        make_key: Makes the StateKey of the bag.
        coder: The coder of the values.
        is_new: Whether the backend has no values of the bag.
    """

    def __init__(
        self,
        piled: Piled,
        handler: Any,
        make_key: Callable[[], beam_fn_api_pb2.StateKey],
        coder: Any,
        *,
        is_new: bool,
    ) -> None:
        # Attributes of Beam's base class, which reads the backend unless the bag was cleared.
        self._piled = piled
        self._state_handler = handler
        self._make_key = make_key
        self._address: beam_fn_api_pb2.StateKey | None = None
        self._value_coder = coder
        self._cleared = is_new
        self._added_elements: list[Any] = []

    @override
    def add(self, value: Any) -> None:
        self._added_elements.append(value)
        self._piled.piled_bytes += size_of(value, self._value_coder)

    def renew(self) -> None:
        """Have it be that of another key, of which the backend has no values."""
        self.clear()
        self._address = None

    @property
    def _state_key(self) -> beam_fn_api_pb2.StateKey:
        if self._address is None:
            self._address = self._make_key()
        return self._address


class KeyValue(KeyBag):
    """A bag of at most one value."""

    @override
    def read(self) -> Any:
        if self._added_elements:
            return self._added_elements[0]
        return None if self._cleared else next(iter(super().read()), None)

    @override
    def write(self, value: Any) -> None:
        self._cleared = True
        self._added_elements = [value]


class KeyCombined(KeyBag):
    """A bag of at most one accumulator, with a CombineFn that all keys share."""

    _is_extracted = False

    def use(self, combine_fn: core.CombineFn) -> None:
        """Set the CombineFn, after its ``setup``; called before any other method."""
        self._combine_fn = combine_fn
        self._add_input = combine_fn.add_input

    @override
    def read(self) -> Any:
        self._is_extracted = True
        return self._combine_fn.extract_output(self._accumulator())

    @override
    def add(self, value: Any) -> None:
        elements = self._added_elements
        if self._is_extracted or not elements:
            elements = self._renewed()
        elements[0] = self._add_input(elements[0], value)

    def _renewed(self) -> list[Any]:
        accumulator = self._accumulator()
        if self._is_extracted:
            # Some CombineFns sort the accumulator when they extract the output; merging undoes it.
            new = self._combine_fn.create_accumulator()
            accumulator = self._combine_fn.merge_accumulators([new, accumulator])
            self._is_extracted = False
            self._added_elements[0] = accumulator
        return self._added_elements

    def clear(self) -> None:
        super().clear()
        self._is_extracted = False

    def _accumulator(self) -> Any:
        if not self._added_elements:
            elements: Iterable[Any] = () if self._cleared else super().read()
            self._added_elements = list(elements) or [self._combine_fn.create_accumulator()]
            self._cleared = True
        return self._added_elements[0]


def size_of(value: Any, coder: Any) -> int:
    """Return about how many bytes a value takes: its own, and those of its encoding."""
    size = sys.getsizeof(value)
    if type(value) in _WITHOUT_PARTS:
        return size
    try:
        return size + int(coder.get_impl().estimate_size(value))
    except Exception:  # it is raised again, and charged to the step, when the value is written
        return size


_WITHOUT_PARTS = frozenset({str, bytes, int, float, bool, type(None)})
KINDS: dict[type[userstate.StateSpec], type[KeyBag]] = {
    userstate.BagStateSpec: KeyBag,
    userstate.ReadModifyWriteStateSpec: KeyValue,
    userstate.CombiningValueStateSpec: KeyCombined,
}
