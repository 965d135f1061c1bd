"""The states that a ``KeyedProcess`` declares as attributes of its class.

The harness
has the actual states: objects of Beam, or maps with single entries (see ``beam.map_states``).

Pickled by value (see ``declarative``).
"""

import inspect
import operator
from collections.abc import Callable
from typing import Any

from apache_beam.coders import BytesCoder, Coder
from apache_beam.transforms import core, userstate
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from typing_extensions import override

from beam_spark_runner.transforms.declarative.declared_attributes import DeclaredAttribute
from beam_spark_runner.transforms.declarative.futures import StateFuture
from beam_spark_runner.transforms.declarative.maps_in_bags import MapInBag
from beam_spark_runner.transforms.declarative.named import DeclarationError
from beam_spark_runner.transforms.declarative.processed import Read, ReadAddress

_READ = operator.methodcaller("read")
_WHOLE = ReadAddress("read")
_CLEAR = operator.methodcaller("clear")


class DeclaredState(DeclaredAttribute):
    """A state of each key and window. Its methods return futures.

    Args:
        name: The name, unique within the process.
        coder: Encodes the values.
    """

    def __init__(self, name: str, coder: Coder) -> None:
        super().__init__(name)
        self.coder = checked_coder(coder, name)

    def clear(self) -> StateFuture:
        """Remove all that the state has."""
        return self._change(_CLEAR)

    def _spec(self, *, has_maps: bool) -> userstate.StateSpec:
        raise NotImplementedError

    def _change(self, access: Callable[[Any], Any]) -> StateFuture:
        return self._running_machine().request(self.name, access)

    def _get(
        self, access: Callable[[Any], Any], address: ReadAddress | None, *, is_lazy: bool = False
    ) -> StateFuture:
        read = Read(address, is_lazy=is_lazy)
        return self._running_machine().request(self.name, access, read)


class ValueState(DeclaredState):
    """A single value."""

    def read(self) -> StateFuture:
        """Return a future of the value; None: there is none."""
        return self._get(_READ, _WHOLE)

    def write(self, value: Any) -> StateFuture:
        """Replace the value."""
        return self._change(lambda state: state.write(value))

    @override
    def _spec(self, *, has_maps: bool) -> userstate.StateSpec:
        return userstate.ReadModifyWriteStateSpec(self.name, self.coder)


class BagState(DeclaredState):
    """Values in no particular order."""

    def read(self) -> StateFuture:
        """Return a future of an iterable of the values, to be used in callbacks of the record.

        Values that are added after the read may be among them: do not add any while you iterate.
        """
        return self._get(_READ, _WHOLE, is_lazy=True)

    def add(self, value: Any) -> StateFuture:
        """Add a value."""
        return self._change(lambda state: state.add(value))

    @override
    def _spec(self, *, has_maps: bool) -> userstate.StateSpec:
        return userstate.BagStateSpec(self.name, self.coder)


class CombiningState(DeclaredState):
    """The accumulator of a CombineFn.

    Args:
        name: The name, unique within the process.
        combine_fn: The CombineFn, or a function that ``beam.CombineGlobally`` would take.
        coder: Encodes accumulators; None: that of the CombineFn.
    """

    def __init__(self, name: str, combine_fn: Any, coder: Coder | None = None) -> None:
        if not isinstance(combine_fn, core.CombineFn) and (
            not callable(combine_fn) or inspect.isclass(combine_fn)
        ):
            raise TypeError(
                f"the state {name!r} needs a CombineFn or a function, not {combine_fn!r}"
            )
        self._combine_fn = core.CombineFn.maybe_from_callable(combine_fn)
        super().__init__(name, self._combine_fn.get_accumulator_coder() if coder is None else coder)

    def read(self) -> StateFuture:
        """Return a future of the output of the CombineFn."""
        return self._get(_READ, _WHOLE)

    def add(self, value: Any) -> StateFuture:
        """Add an input of the CombineFn."""
        return self._change(lambda state: state.add(value))

    @override
    def _spec(self, *, has_maps: bool) -> userstate.StateSpec:
        return userstate.CombiningValueStateSpec(self.name, self.coder, self._combine_fn)


class OrderedListState(DeclaredState):
    """Values sorted by timestamps."""

    def add(self, timestamp: Any, value: Any) -> StateFuture:
        """Add a value at a timestamp, which may have several."""
        return self._change(lambda state: state.add((Timestamp.of(timestamp), value)))

    def read(self) -> StateFuture:
        """Return a future of the list of pairs of timestamp and value, by timestamp."""
        return self._get(lambda state: [*state.read()], _WHOLE)

    def read_range(self, start: Any, end: Any) -> StateFuture:
        """As ``read``, of timestamps in ``[start, end)``."""
        return self._read_range(_clamped(start).micros, _clamped(end).micros)

    def _read_range(self, start_us: int, end_us: int) -> StateFuture:
        bounds = Timestamp(micros=start_us), Timestamp(micros=end_us)
        address = ReadAddress("read_range", (start_us, end_us))
        return self._get(lambda state: [*state.read_range(*bounds)], address)

    def clear_range(self, start: Any, end: Any) -> StateFuture:
        """Remove the values at timestamps in ``[start, end)``."""
        bounds = _clamped(start), _clamped(end)
        return self._change(lambda state: state.clear_range(*bounds))

    @override
    def _spec(self, *, has_maps: bool) -> userstate.StateSpec:
        return userstate.OrderedListStateSpec(self.name, self.coder)


class _EntriesState(DeclaredState):
    """A state whose entries are accessed one by one, where the harness can do this."""

    value_coder: Coder

    def contains(self, key: Any) -> StateFuture:
        """Return a future of whether the map has a key, or the set a value."""
        return self._contains(self.coder.encode(key))

    def _contains(self, coded: bytes) -> StateFuture:
        address = ReadAddress("contains", (coded,))
        return self._get(lambda state: state.get(coded) is not None, address)

    def remove(self, key: Any) -> StateFuture:
        """Remove a key with its value, or a value of a set, if it is there."""
        coded = self.coder.encode(key)
        return self._change(lambda state: state.remove(coded))

    def _items(self, convert: Callable[[tuple[bytes, bytes]], Any], method: str) -> StateFuture:
        """Return a future of an iterable of the converted entries, for a method."""
        return self._get(
            lambda state: _Iterable(state.items(), convert), ReadAddress(method), is_lazy=True
        )

    @override
    def _change(self, access: Callable[[Any], Any]) -> StateFuture:
        return super()._change(lambda state: access(_as_map(state)))

    @override
    def _get(
        self, access: Callable[[Any], Any], address: ReadAddress | None, *, is_lazy: bool = False
    ) -> StateFuture:
        return super()._get(lambda state: access(_as_map(state)), address, is_lazy=is_lazy)

    @override
    def _spec(self, *, has_maps: bool) -> userstate.StateSpec:
        if has_maps:
            return MapSpec(self.name, self.coder, self.value_coder)
        return userstate.BagStateSpec(self.name, MapInBag.CODER)


class SetState(_EntriesState):
    """Values, each at most once. Values are equal if their encodings are.

    Args:
        name: The name, unique within the process.
        coder: Encodes the values; it must be deterministic.
    """

    def __init__(self, name: str, coder: Coder) -> None:
        super().__init__(name, _deterministic(coder, name))
        self.value_coder = BytesCoder()

    def add(self, value: Any) -> StateFuture:
        """Add a value."""
        coded = self.coder.encode(value)
        return self._change(lambda state: state.put(coded, b""))

    def read(self) -> StateFuture:
        """Return a future of an iterable of the values, to be used in callbacks of the record."""
        decode = self.coder.decode
        return self._items(lambda entry: decode(entry[0]), "read")


class MapState(_EntriesState):
    """A map. Keys are equal if their encodings are.

    Args:
        name: The name, unique within the process.
        key_coder: Encodes the keys; it must be deterministic.
        value_coder: Encodes the values.
    """

    def __init__(self, name: str, key_coder: Coder, value_coder: Coder) -> None:
        super().__init__(name, _deterministic(key_coder, name))
        self.value_coder = checked_coder(value_coder, name)

    def get(self, key: Any, default: Any = None) -> StateFuture:
        """Return a future of the value of a key, or of a default."""
        return self._get_entry(self.coder.encode(key), default)

    def _get_entry(self, coded: bytes, default: Any) -> StateFuture:
        def access(state: Any) -> Any:
            value = state.get(coded)
            return default if value is None else self.value_coder.decode(value)

        can_be_stored = default is None or isinstance(default, bool | int | float | str | bytes)
        address = ReadAddress("get_entry", (coded, default)) if can_be_stored else None
        return self._get(access, address)

    def put(self, key: Any, value: Any) -> StateFuture:
        """Set the value of a key."""
        coded, its_value = self.coder.encode(key), self.value_coder.encode(value)
        return self._change(lambda state: state.put(coded, its_value))

    def items(self) -> StateFuture:
        """Return a future of an iterable of pairs, to be used in callbacks of the record."""
        decode, decode_value = self.coder.decode, self.value_coder.decode
        return self._items(lambda entry: (decode(entry[0]), decode_value(entry[1])), "items")


class MapSpec(userstate.BagStateSpec):  # type: ignore[misc]
    """A map as a step of this runner declares it.

    SDK harnesses without this package have it in a bag, and the runner requests its entries in all
    others. To both it is a map of bytes. Its proto has the coders of keys and values, so that a
    checkpoint shows whether they have changed.
    """

    has_entries = True  # by which ``harness.beam.map_states`` recognises it

    def __init__(self, name: str, key_coder: Coder, value_coder: Coder) -> None:
        super().__init__(name, MapInBag.CODER)
        self._key_coder, self._value_coder = key_coder, value_coder

    @override
    def to_runner_api(self, context: Any) -> Any:
        # Here, since these modules cannot be pickled with the functions of this one.
        from apache_beam.portability import common_urns
        from apache_beam.portability.api import beam_runner_api_pb2

        return beam_runner_api_pb2.StateSpec(
            map_spec=beam_runner_api_pb2.MapStateSpec(
                key_coder_id=context.coders.get_id(self._key_coder),
                value_coder_id=context.coders.get_id(self._value_coder),
            ),
            protocol=beam_runner_api_pb2.FunctionSpec(urn=common_urns.user_state.BAG.urn),
        )


def read_again(state: Any, address: ReadAddress) -> StateFuture:
    """Make a read that was not executed, for the record that is processed. No method, likewise.

    Args:
        state: The state, as ``spec_of`` takes it.
        address: What the read was.
    """
    name = f"_{address.method}" if address.arguments else address.method
    future: StateFuture = getattr(state, name)(*address.arguments)
    return future


def spec_of(state: Any, *, has_maps: bool) -> userstate.StateSpec:
    """Return a state as Beam declares it. No method, since users see those.

    Args:
        state: The state, perhaps of another copy of its class.
        has_maps: Whether the runner is one that knows ``MapSpec``.
    """
    return state._spec(has_maps=has_maps)


class _Iterable:
    """Converts the items of an iterable, each time that it is iterated."""

    def __init__(self, items: Any, convert: Callable[[Any], Any]) -> None:
        self._items, self._convert = items, convert

    def __iter__(self) -> Any:
        return map(self._convert, self._items)


def _as_map(state: Any) -> Any:
    return state if hasattr(state, "put") else MapInBag(state)


def _clamped(timestamp: Any) -> Timestamp:
    return min(max(Timestamp.of(timestamp), MIN_TIMESTAMP), MAX_TIMESTAMP)


def checked_coder(coder: Any, name: str) -> Coder:
    """Check that an argument is a coder.

    Raises:
        TypeError: It is not.
    """
    if not isinstance(coder, Coder):
        raise TypeError(f"the state {name!r} needs a coder, not {coder!r}")
    return coder


def _deterministic(coder: Any, name: str) -> Coder:
    if not checked_coder(coder, name).is_deterministic():
        raise DeclarationError(
            f"the state {name!r} needs a deterministic coder for what it looks up, not {coder!r}"
        )
    return coder
