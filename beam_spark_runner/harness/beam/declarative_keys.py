"""The keys of a declarative step that are processed at the same time.

``semantics.in_flight`` decides what runs, and which requests are executed together.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from apache_beam.coders import WindowedValueCoder
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.beam.declarative_code import Item, KeyCode, KeyInFlight, Step
from beam_spark_runner.harness.beam.declarative_items import (
    Advance,
    Begun,
    Element,
    LeftCodec,
    Request,
)
from beam_spark_runner.harness.beam.declarative_log import ElementLog
from beam_spark_runner.harness.beam.declarative_requests import (
    CodeRequest,
    StateQueue,
    StateRequest,
)
from beam_spark_runner.harness.beam.key_states import KeyStates
from beam_spark_runner.harness.bundle import RecordLeft, Settled
from beam_spark_runner.harness.failures import ChargedTo
from beam_spark_runner.semantics.in_flight import InFlight
from beam_spark_runner.semantics.interruption import Interruption
from beam_spark_runner.semantics.timers import Instant
from beam_spark_runner.state.backend import Batches
from beam_spark_runner.state.policy import KeyPolicy

T = TypeVar("T")
_ADVANCE_BYTES = 200


class KeysInFlight:
    """Processes elements and timers of many keys. Threads: the bundle's.

    Args:
        step: Runs the code.
        name: The name of the step.
        template: The states of a key, to be copied for each.
        coder: The coder of the step's input.
        batches: Executes requests.
        policy: That of the bundle.
        interruption: Decides when due timers are left for later; None: all of them fire.
        now_us: Returns the time of a monotonic clock.
    """

    def __init__(
        self,
        step: Step,
        name: str,
        template: KeyStates,
        coder: WindowedValueCoder,
        batches: Batches,
        policy: KeyPolicy,
        interruption: Interruption | None,
        now_us: Callable[[], int],
    ) -> None:
        self._step, self._name = step, name
        self._template, self._batches = template, batches
        self._code = KeyCode(step, batches, interruption)
        self._now_us = now_us
        self._to, self._limits = policy.to, policy.in_flight
        self._leaves_after_us = policy.leaves_after_us
        self._codec = LeftCodec(coder, template)
        self._has_answered = False
        self._flights: InFlight[bytes, Item, StateRequest | CodeRequest]
        self._flights = InFlight(policy.in_flight, ElementLog(coder))
        self._keys: dict[bytes, KeyInFlight] = {}
        self._unused: list[KeyStates] = []
        self._restored: dict[bytes, None] = {}

    def add(self, key: bytes, value: Any, origin: WindowedValue, size: int) -> None:
        """Take an element; outputs may come during this call, also of other keys.

        Args:
            key: The key, encoded and nested.
            value: The element.
            origin: Has its timestamp, its one window, and its pane.
            size: About how many bytes it takes.
        """
        self._take(key, Element(value, origin), size)

    def advance(self, key: bytes, to: Instant, *, ends: bool) -> None:
        """Advance the time of a key after all its elements so far.

        Args:
            key: The key, encoded and nested.
            to: See ``Advance``.
            ends: See ``Advance``.
        """
        self._take(key, Advance(to, ends), _ADVANCE_BYTES)

    @property
    def are_settled(self) -> bool:
        """Whether nothing is in flight."""
        return self._flights.is_empty

    def restore(self, records: Iterable[bytes]) -> None:
        """Continue what ``settle`` of another object has returned, before anything else."""
        with ChargedTo(self._name):
            for coded in records:
                key, item = self._codec.decode(coded)
                self._add(key, item, len(coded))
                self._restored[key] = None
        self._run()

    def settle(self) -> Settled:
        """Finish all that is in flight, or leave the rest; see ``KeyPolicy.leaves_after_us``."""
        since_us = self._now_us()
        for key in self._restored:  # they may have set timers that are due
            self._add(key, Advance(self._to, ends=True), _ADVANCE_BYTES)
        self._restored.clear()
        self._run()
        while not self._flights.is_empty:
            if self._leaves(since_us):
                return self._left()
            self._execute_batch()
        return Settled()

    def _leaves(self, since_us: int) -> bool:
        """Whether the rest is left now: at least one read was executed, to make progress."""
        after_us = self._leaves_after_us
        return (
            after_us is not None
            and self._has_answered
            and self._now_us() - since_us >= after_us
            and self._flights.size <= self._limits.left_size
        )

    def _left(self) -> Settled:
        """Take out all records, once those of their requests were executed that must be."""
        flights = self._flights
        self._code.is_leaving = True
        flights.stop()
        for request in flights.withdraw(_opens):
            request.key.steps = None
            flights.put_back(request.key.coded)
        while requests := flights.withdraw(self._must_be_executed()):
            for some in _batched(requests, self._limits.batch):
                self._execute(some)
        requests_left: dict[bytes, list[Request]] = defaultdict(list)
        records: dict[bytes, Any] = {}
        left_of = self._step.snapshot()
        for request in flights.withdraw(lambda _: True):
            assert isinstance(request, StateRequest)
            left = left_of(request)
            assert left is not None
            requests_left[request.key.coded].append(left)
            records[request.key.coded] = request.record
        found: list[RecordLeft] = []
        begun: list[Begun] = []
        with ChargedTo(self._name):
            for coded, _, waiting in flights.left():
                if coded in records:
                    begun.append(self._begun(coded, records[coded], requests_left[coded]))
                    found.append(self._codec.encode(coded, begun[-1]))
                # Time advances in a later epoch.
                elements = [item for item in waiting if not isinstance(item, Advance)]
                begun += (item for item in elements if isinstance(item, Begun))
                found += (self._codec.encode(coded, element) for element in elements)
            self._write_all()
        self._keys.clear()
        return Settled(found, is_finished=False, needs=self._step.described(begun))

    def _begun(self, coded: bytes, record: Any, requests: Sequence[Request]) -> Begun:
        key = self._keys[coded]
        variables = self._step.variables_left(record)
        in_flight = key.fired or Element(key.value, key.origin)
        return Begun(in_flight, variables, tuple(requests))

    def _must_be_executed(self) -> Callable[[StateRequest | CodeRequest], bool]:
        left_of = self._step.snapshot()

        def must_be(request: StateRequest | CodeRequest) -> bool:
            if isinstance(request, CodeRequest):
                return True
            return request.key.queues[request.name].has_behind or left_of(request) is None

        return must_be

    def _write_all(self) -> None:
        """Write the states and timers of all keys."""
        left = [self._code.end(key) for key in self._keys.values() if key.states.has_begun]
        while left:
            missed: list[Any] = []
            waiting = []
            for steps in left:
                if reads := next(steps, None):
                    missed += reads
                    waiting.append(steps)
            if missed:
                self._batches.load(missed)
            left = waiting

    def _take(self, key: bytes, item: Element | Advance, size: int) -> None:
        self._add(key, item, size)
        self._run()
        flights = self._flights
        while flights.is_full or flights.is_batch_due(self._now_us()):
            self._execute_batch()

    def _add(self, key: bytes, item: Item, size: int) -> None:
        if key not in self._keys:
            states = self._unused.pop() if self._unused else self._template.of_another_key()
            self._keys[key] = KeyInFlight(key, states)
        self._flights.add(key, item, size)

    def _run(self) -> None:
        """Run what need not wait."""
        while (begun := self._flights.begin()) is not None:
            coded, item = begun
            key = self._keys[coded]
            if key.steps is None:
                key.steps = self._code.of(key, item)
            self._continue(key)

    def _continue(self, key: KeyInFlight) -> None:
        """Run the code of an item until it is done, or waits."""
        assert key.steps is not None
        self._code.current = key
        with ChargedTo(self._name):  # coders may raise
            reads = next(key.steps, None)
        if reads:  # its reference is then that of the request
            self._flights.wait(CodeRequest(key, reads), self._now_us())
            return
        if reads is None:
            key.steps = None
        self._flights.returned(key.coded, keeps=reads is not None)
        if not self._flights.has(key.coded) and not key.states.has_begun:
            del self._keys[key.coded]
            self._unused.append(key.states)

    # -- requests of states ------------------------------------------------------------------------

    def ask(
        self, record: Any, name: str, access: Callable[[], Any], future: Any, read: Any
    ) -> tuple[Any] | None:
        """See ``transforms.declarative.processed.Requests``."""
        key = self._code.current
        assert key is not None
        request = StateRequest(key, record, name, access, future, read)
        queue = key.queues.get(name)
        if queue is None or queue.may_try(request):
            done = request.is_done(self._batches)
            if done is not None:
                return done
            if queue is None:
                queue = key.queues[name] = StateQueue()
            queue.tried(request)
            self._flights.wait(request, self._now_us())
        else:
            queue.put_behind(request)
        key.waits += 1
        self._flights.refer(key.coded)
        return None

    def _execute_batch(self) -> None:
        """Execute the oldest requests."""
        self._execute(self._flights.batch())

    def _execute(self, batch: Sequence[StateRequest | CodeRequest]) -> None:
        """Load what requests wait for in one round trip, and run all that can continue then."""
        missed = [read for request in batch for read in request.missed]
        if missed:
            self._batches.load(missed)
        for request in batch:
            if isinstance(request, CodeRequest):
                self._continue(request.key)
            else:
                self._try_again(request)
        self._run()

    def _try_again(self, request: StateRequest) -> None:
        done = self._tried(request)
        if done is None:
            self._flights.wait(request, self._now_us())
            return
        key = request.key
        queue = key.queues[request.name]
        queue.done(request)
        self._resume(request, done[0])
        while (following := queue.next()) is not None:
            done = self._tried(following)
            if done is None:
                queue.tried(following)
                self._flights.wait(following, self._now_us())
            else:
                self._resume(following, done[0])

    def _tried(self, request: StateRequest) -> tuple[Any] | None:
        with self._step.charged(request.key):
            return request.is_done(self._batches)

    def _resume(self, request: StateRequest, result: Any) -> None:
        key = request.key
        key.waits -= 1
        self._has_answered = True
        self._code.current = key
        self._step.resume(key, request, result)
        self._flights.returned(key.coded)


def _opens(request: StateRequest | CodeRequest) -> bool:
    return isinstance(request, CodeRequest) and request.key.is_opening


def _batched(requests: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    for first in range(0, len(requests), most):
        yield requests[first : first + most]
