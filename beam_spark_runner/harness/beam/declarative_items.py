"""What a key of a declarative step has in flight, item by item."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from apache_beam.coders import FastPrimitivesCoder, WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner._generated import store_pb2
from beam_spark_runner.harness.beam.key_states import KeyStates
from beam_spark_runner.harness.bundle import RecordLeft
from beam_spark_runner.semantics.lateness import waiting_hold_us
from beam_spark_runner.semantics.timers import Instant, Timer
from beam_spark_runner.state.coded_timers import timer_of_proto, timer_proto

_ARGUMENTS = FastPrimitivesCoder().get_impl()


class Element(NamedTuple):
    """An element in one window.

    Attributes:
        value: Its value, a pair of key and value.
        origin: Has its timestamp, window and pane.
    """

    value: Any
    origin: WindowedValue


class Fired(NamedTuple):
    """A timer that has fired.

    Attributes:
        timer: The timer, which is no longer set.
        drops_window: Whether the state of its window is dropped afterwards.
    """

    timer: Timer
    drops_window: bool


class Advance(NamedTuple):
    """The time of a key advances: what is due fires.

    Attributes:
        to: Until when timers are due.
        ends: Whether the key is stored afterwards: all its elements have come.
    """

    to: Instant
    ends: bool


class Request(NamedTuple):
    """A read that was not executed.

    Attributes:
        state: The name of the state.
        method: See ``transforms.declarative.processed.ReadAddress``.
        arguments: Likewise.
        continuation: The callbacks that wait for it, see ``transforms.declarative.continuations``.
        callbacks: Their names.
    """

    state: str
    method: str
    arguments: tuple[Any, ...]
    continuation: bytes
    callbacks: frozenset[str] = frozenset()


class Begun(NamedTuple):
    """A record that has begun in an earlier bundle.

    Attributes:
        record: The record.
        variables: Its variables that are set, encoded, by name.
        requests: The reads that it waits for.
    """

    record: Element | Fired
    variables: Mapping[str, bytes]
    requests: tuple[Request, ...]


class LeftCodec:
    """Encodes records that are left for a later bundle.

    Args:
        coder: The coder of the step's input.
        states: The states of any key.
    """

    def __init__(self, coder: WindowedValueCoder, states: KeyStates) -> None:
        self._coder, self._states = coder.get_impl(), states

    def encode(self, key: bytes, item: Element | Begun) -> RecordLeft:
        """Encode a record.

        Args:
            key: The key, encoded and nested.
            item: The record.
        """
        coded = store_pb2.RecordLeft(key=key, has_begun=isinstance(item, Begun))
        record: Element | Fired
        if isinstance(item, Begun):
            record = item.record
            coded.variables.update(item.variables)
            coded.requests.extend(
                store_pb2.RequestLeft(
                    state=each.state,
                    method=each.method,
                    arguments=_ARGUMENTS.encode(each.arguments),
                    continuation=each.continuation,
                )
                for each in item.requests
            )
        else:
            record = item
        if isinstance(record, Element):
            element = record.origin.with_value(record.value)
            coded.element = self._coder.encode(element)
            hold_us = waiting_hold_us(element)
        else:
            hold_us = record.timer.hold_us
            coded.timer.CopyFrom(timer_proto(self._states.stored_timer(record.timer)))
            coded.drops_window = record.drops_window
        return RecordLeft(key, hold_us, coded.SerializeToString(deterministic=True))

    def decode(self, coded: bytes) -> tuple[bytes, Element | Begun]:
        """Return the key of a record, encoded and nested, and the record."""
        proto = store_pb2.RecordLeft.FromString(coded)
        record: Element | Fired
        if proto.HasField("timer"):
            timer = self._states.timer_of(timer_of_proto(proto.timer), proto.key)
            record = Fired(timer, proto.drops_window)
        else:
            origin = self._coder.decode(proto.element)
            record = Element(origin.value, origin)
        if not proto.has_begun:
            assert isinstance(record, Element)
            return proto.key, record
        requests = tuple(
            Request(
                each.state,
                each.method,
                _ARGUMENTS.decode(each.arguments),
                each.continuation,
            )
            for each in proto.requests
        )
        return proto.key, Begun(record, dict(proto.variables), requests)
