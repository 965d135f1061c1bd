"""Declarative steps whose state is in a state store process many keys at the same time.

Everything runs in the bundle's thread. In batch, and where state is on this host, these steps run
as all other steps with state do.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.core.errors import InvariantError
from beam_spark_runner.harness.beam.current_element import ChargedChunk, CurrentElement
from beam_spark_runner.harness.beam.declarative_code import KeyInFlight
from beam_spark_runner.harness.beam.declarative_items import Begun, Element, LeftCodec, Request
from beam_spark_runner.harness.beam.declarative_keys import KeysInFlight
from beam_spark_runner.harness.beam.declarative_requests import StateRequest
from beam_spark_runner.harness.beam.key_bags import size_of
from beam_spark_runner.harness.beam.keyed import KeyedParDo
from beam_spark_runner.harness.bundle import Settled
from beam_spark_runner.harness.values.constants import Kind
from beam_spark_runner.semantics.timers import START_OF_TIME, Instant, Timer
from beam_spark_runner.state.policy import KeyPolicy
from beam_spark_runner.state.store import StoredState
from beam_spark_runner.transforms.declarative.continuations import (
    Continuations,
    decoded,
    encoded,
    names_in_tree,
)
from beam_spark_runner.transforms.declarative.processed import ReadAddress


def is_declarative(fn: Any) -> bool:
    """Whether a DoFn is that of a ``DeclarativeKeyedProcess``."""
    return getattr(fn, "is_declarative", False) is True


class DeclarativeParDo(KeyedParDo):
    """The DoFn of a ``DeclarativeKeyedProcess``. Threads: the bundle's.

    It is a ``Step`` of ``KeysInFlight``.
    """

    _keys: KeysInFlight | None = None  # None: keys are processed one after another
    _made_continuations: Continuations | None = None
    _key = b""  # that of the last elements, encoded and nested

    def prepare_declarative(self, fn: Any, coder: WindowedValueCoder) -> None:
        """Set what ``prepare`` does not.

        Args:
            fn: The DoFn.
            coder: The coder of the step's input.
        """
        self._fn, self._coder, self._template = fn, coder, self.states
        self._element_coder = coder.wrapped_value_coder

    @override
    def use(self, policy: KeyPolicy) -> None:
        self.states = self._template
        super().use(policy)
        store = policy.store
        self._keys = None
        if isinstance(store, StoredState) and store.batches is not None:
            self._keys = KeysInFlight(
                self,
                self.step_name,
                self.states,
                self._coder,
                store.batches,
                policy,
                self._interruption,
                lambda: time.monotonic_ns() // 1_000,
            )
        self._fn.machine.requests = self._keys
        if policy.leaves_after_us is not None:
            self._continuations()  # before records may change what its callbacks use

    @override
    def begin_key(self, key: bytes) -> None:
        if self._keys is None:
            super().begin_key(key)
        self._key = key

    @override
    def process_chunk(self, values: list[Any], origins: list[WindowedValue], kind: Kind) -> None:
        if self._keys is None:
            super().process_chunk(values, origins, kind)
            return
        key = self._key = self.states.encoded(values[0][0])
        for value, origin in zip(*self._in_time(values, origins), strict=True):
            size = size_of(value, self._element_coder)
            for window in origin.windows:
                part = origin
                if len(origin.windows) > 1:
                    part = WindowedValue(value, origin.timestamp, (window,), origin.pane_info)
                self._keys.add(key, value, part, size)

    @override
    def count(self, elements: int) -> None:
        if self._keys is None:
            super().count(elements)

    @override
    def advance_key(self, to: Instant) -> None:
        if self._keys is None:
            super().advance_key(to)
        else:
            self._keys.advance(self._key, to, ends=True)

    @override
    def fire_due(self, to: Instant) -> None:
        if self._keys is None:
            super().fire_due(to)
        else:
            self._keys.advance(self._key, to, ends=False)

    @override
    def restore(self, records: Sequence[bytes]) -> None:
        if self._keys is not None:
            self._keys.restore(records)
            return
        codec = LeftCodec(self._coder, self.states)
        decoded = [codec.decode(coded) for coded in records]
        for coded, items in itertools.groupby(decoded, key=lambda each: each[0]):
            self._continue(KeyInFlight(coded, self.states), [item for _, item in items])

    def _continue(self, key: KeyInFlight, items: Sequence[Element | Begun]) -> None:
        """Process what a bundle has left of a key, without a state store."""
        super().begin_key(key.coded)
        for item in items:
            begun = item if isinstance(item, Begun) else None
            record = item.record if isinstance(item, Begun) else item
            if isinstance(record, Element):
                self.run_element(key, record, begun)
            else:
                self.run_timer(key, record.timer, begun)
                if record.drops_window:
                    self.states.drop_window(record.timer.id.window)
        super().advance_key(START_OF_TIME)  # what is due fires later, when all elements have come

    @override
    def settle(self) -> Settled:
        return Settled() if self._keys is None else self._keys.settle()

    def finish(self) -> None:
        """See Beam's ``Operation``: at the end of the bundle."""
        if self._keys is not None and not self._keys.are_settled:
            raise InvariantError(f"{self.step_name} ends with elements in flight")
        super().finish()

    # -- a step of the keys in flight --------------------------------------------------------------

    def run_element(self, key: KeyInFlight, element: Element, begun: Begun | None = None) -> None:
        """See ``Step``."""
        value, origin = element
        self._begin(begun)
        call = self._called(key)
        key.value, key.origin = value, origin
        with self.scoped_process_state, ChargedChunk(self.step_name, call.current_element):
            call.run([value], [origin], self._outputs.handle_process_outputs)

    def run_timer(self, key: KeyInFlight, timer: Timer, begun: Begun | None = None) -> None:
        """See ``Step``."""
        self._begin(begun)
        user_key, pane = timer.payload
        window, timestamp = timer.id.window, Timestamp(micros=timer.fires_us)
        key.value, key.origin = None, WindowedValue(None, timestamp, (window,))
        context = {"key": user_key, "timestamp": timestamp, "window": window}
        call = self._called(key)
        with self.scoped_process_state, self.charged(key):
            given = call.states_and_timers(user_key, window, timestamp, pane)
            results = self._fn.fire(timer.id.family, timer.id.tag, context, given)
            self._outputs.handle_process_outputs(key.origin, results)

    def resume(self, key: KeyInFlight, request: StateRequest, result: Any) -> None:
        """See ``Step``."""
        with self.scoped_process_state, self.charged(key):
            self._fn.machine.resume(request.record, request.future, result)
            self._outputs.handle_process_outputs(key.origin, request.record.taken())

    def snapshot(self) -> Callable[[StateRequest], Request | None]:
        """See ``Step``."""
        tree_of = self._continuations().snapshot().tree_of

        def left(request: StateRequest) -> Request | None:
            if request.read is None or request.read.address is None:
                return None
            tree = tree_of(request.future)
            if tree is None:
                return None
            address = request.read.address
            callbacks = frozenset(names_in_tree(tree))
            return Request(
                *(request.name, address.method, address.arguments), encoded(tree), callbacks
            )

        return left

    def variables_left(self, record: Any) -> Mapping[str, bytes]:
        """See ``Step``."""
        variables: Mapping[str, bytes] = self._fn.declared.coded_variables(record)
        return variables

    def described(self, left: Sequence[Begun]) -> frozenset[str]:
        """See ``Step``."""
        callbacks, variables = self._fn.declared.descriptions
        found = {variables[name] for each in left for name in each.variables}
        for each in left:
            for request in each.requests:
                # Those of a request that was left before have not been read yet.
                names = request.callbacks or names_in_tree(decoded(request.continuation))
                found |= {callbacks[name] for name in names}
        return frozenset(found)

    def _continuations(self) -> Continuations:
        if self._made_continuations is None:
            self._made_continuations = Continuations(self._fn.declared, self.step_name)
        return self._made_continuations

    def _begin(self, begun: Begun | None) -> None:
        """Have the next record of the DoFn continue, if it has begun already."""
        if begun is None:
            return
        continuations, requests = self._continuations(), begun.requests
        self._fn.declared.continue_next(
            begun.variables,
            [(each.state, ReadAddress(each.method, each.arguments)) for each in requests],
            lambda number, future: continuations.attach(
                decoded(requests[number].continuation), future
            ),
        )

    def charged(self, key: KeyInFlight) -> AbstractContextManager[None]:
        """See ``Step``."""
        element = CurrentElement()
        if key.value is not None:
            next(element.iterate([key.value]))
        return ChargedChunk(self.step_name, element)

    def forget_arguments(self) -> None:
        """See ``Step``."""
        self._forget_call()

    def _called(self, key: KeyInFlight) -> Any:
        """Return what calls the DoFn, with the states of a key."""
        self.states = key.states
        if self._call is None:
            assert self._make_call is not None
            self._call = self._make_call(self._expect_expiry)
        self._call.use(key.states)
        return self._call
