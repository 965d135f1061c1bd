"""Futures of state accesses, and the machine that completes them.

Callbacks run from a queue, in the order in which they became ready, and never within each other:
a chain of any length needs no stack. Each callback that waits is a ``Then``, whose own result may
have further callbacks: together they are a tree of callbacks.

Pickled by value (see ``declarative``).
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from beam_spark_runner.transforms.declarative.combining import Combination, Part, Spread
from beam_spark_runner.transforms.declarative.processed import Read, Requests
from beam_spark_runner.transforms.declarative.returned import (
    check_callable,
    check_dropped,
    check_future,
)
from beam_spark_runner.transforms.declarative.waiting_callbacks import (
    FORWARD,
    TRUE,
    Branch,
    Continuation,
    Forward,
    Kind,
    Pair,
    Then,
)


class StateFuture:
    """The result of a state access, or of the callbacks that follow it.

    States and ``DeclarationContext`` make futures. Each ``then_…`` returns a further one; callbacks
    may also be added to a future that is complete. They run after the code that has added them has
    returned.
    """

    __slots__ = ("_is_complete", "_machine", "_record", "_result", "_waiting")

    is_state_future = True
    """Recognises futures also if their class was pickled by value, and so is another one."""

    def __init__(self, machine: "ImmediateMachine") -> None:
        self._machine = machine
        self._record = machine.record
        self._is_complete = False
        self._result: Any = None
        self._waiting: list[Continuation] = []

    def then_apply(self, fn: Callable[[Any], Any]) -> "StateFuture":
        """Call ``fn`` with the result; what it returns is the result of the new future."""
        return self._then(Kind.APPLY, fn)

    def then_accept(self, fn: Callable[[Any], Any]) -> "StateFuture":
        """Call ``fn`` with the result; the result of the new future is None."""
        return self._then(Kind.ACCEPT, fn)

    def then_compose(self, fn: Callable[[Any], "StateFuture"]) -> "StateFuture":
        """Call ``fn`` with the result; it returns a future, whose result the new future gets."""
        return self._then(Kind.COMPOSE, fn)

    def then_combine(self, other: "StateFuture", fn: Callable[[Any, Any], Any]) -> "StateFuture":
        """Call ``fn`` with the results of this future and another one, once both are complete."""
        futures = [self, other]
        return self._machine.combined(futures, "then_combine").then_apply(Spread(fn))

    def then_conditionally_apply(
        self,
        condition: Callable[[Any], Any],
        if_true: Callable[[Any], Any],
        if_false: Callable[[Any], Any] | None = None,
    ) -> "StateFuture":
        """Call one of two functions with the result, as ``then_apply`` does.

        Returns:
            A future of a pair: whether the condition holds, and the result of the function that was
            called, or None if there is no such function.
        """
        return self._branch(Kind.APPLY, condition, if_true, if_false)

    def then_conditionally_accept(
        self,
        condition: Callable[[Any], Any],
        if_true: Callable[[Any], Any],
        if_false: Callable[[Any], Any] | None = None,
    ) -> "StateFuture":
        """Call one of two functions with the result, as ``then_accept`` does.

        Returns:
            A future of a pair: whether the condition holds, and None.
        """
        return self._branch(Kind.ACCEPT, condition, if_true, if_false)

    def then_conditionally_compose(
        self,
        condition: Callable[[Any], Any],
        if_true: Callable[[Any], "StateFuture"],
        if_false: Callable[[Any], "StateFuture"] | None = None,
    ) -> "StateFuture":
        """Call one of two functions with the result, as ``then_compose`` does.

        Returns:
            A future of a pair: whether the condition holds, and the result of the future that the
            function has returned, or None if there is no such function.
        """
        return self._branch(Kind.COMPOSE, condition, if_true, if_false)

    def __bool__(self) -> bool:
        raise TypeError("a StateFuture is neither true nor false; a callback gets its result")

    def _then(self, kind: Kind, fn: Callable[[Any], Any]) -> "StateFuture":
        check_callable(fn)
        result = self._machine.future()
        self._continue(Then(kind, fn, result))
        return result

    def _branch(
        self,
        kind: Kind,
        condition: Callable[[Any], Any],
        if_true: Callable[[Any], Any],
        if_false: Callable[[Any], Any] | None,
    ) -> "StateFuture":
        check_callable(condition)
        check_callable(if_true)
        if if_false is not None:
            check_callable(if_false)
        result = self._machine.future()
        self._continue(Branch(kind, condition, if_true, if_false, result))
        return result

    def _continue(self, continuation: Continuation) -> None:
        if self._is_complete:
            self._machine.later(continuation, self._result)
        elif self._record is not self._machine.record:
            raise RuntimeError("a future is used outside of the callbacks of its record")
        else:
            self._waiting.append(continuation)

    def _complete(self, result: Any) -> None:
        self._is_complete, self._result = True, result
        self._machine.count_complete()
        waiting, self._waiting = self._waiting, []
        for continuation in waiting:
            self._machine.later(continuation, result)


class ImmediateMachine:
    """Completes futures, and runs callbacks. Threads: one.

    Attributes:
        record: The record that is processed; None: none is.
        requests: Accesses states. None: accesses need not be waited for, and are made at once.
    """

    def __init__(self) -> None:
        self.record: Any = None
        self.requests: Requests | None = None
        self._ready: deque[tuple[Continuation, Any]] = deque()

    def run(self, record: Any, first: Callable[[Any], Any], element: Any) -> None:
        """Process a record: run its first code, and then callbacks until none is left.

        Args:
            record: The record. If it ``waits`` for requests afterwards, ``resume`` continues it.
            first: The code that the process has declared for such records.
            element: The argument of ``first``.

        Raises:
            RuntimeError: Futures of the record wait for each other.
        """
        self.record = record
        try:
            returned = first(element)
            if returned is not None:
                check_dropped(returned, first)
                check_future(returned, "the code of a record returns nothing, or", first)
            self._run_callbacks()
        finally:
            self._stop()

    def resume(self, record: Any, future: StateFuture, result: Any) -> None:
        """Complete the future of a request of a record, and run the callbacks that follow.

        Args:
            record: The record.
            future: The future; see ``Requests``.
            result: Its result.

        Raises:
            RuntimeError: Futures of the record wait for each other.
        """
        self.record = record
        try:
            record.waits -= 1
            future._complete(result)
            self._run_callbacks()
        finally:
            self._stop()

    def _run_callbacks(self) -> None:
        while self._ready:
            continuation, value = self._ready.popleft()
            continuation.run(value)
        if self.record.incomplete and not self.record.waits:
            raise RuntimeError(
                "futures of a record wait for each other: a callback of then_compose has "
                "returned a future that waits for this callback"
            )

    def _stop(self) -> None:
        self.record = None
        self._ready.clear()

    def request(
        self, name: str, access: Callable[[Any], Any], read: Read | None = None
    ) -> StateFuture:
        """Access a state of the record.

        Args:
            name: The name of the state.
            access: Called with the state as the harness has it.
            read: See ``Requests``.

        Raises:
            RuntimeError: No record is processed.
        """
        self._check_running("a state")
        record = self.record
        state = record.states[name]
        if self.requests is None:
            return self.completed(access(state))
        future = StateFuture(self)
        found = self.requests.ask(record, name, lambda: access(state), future, read)
        if found is None:
            record.incomplete += 1
            record.waits += 1
        else:
            future._is_complete, future._result = True, found[0]
        return future

    def future(self) -> StateFuture:
        """Return a future that is not complete."""
        self._check_running("a future")
        self.record.incomplete += 1
        return StateFuture(self)

    def completed(self, result: Any) -> StateFuture:
        """Return a future that is complete."""
        future = StateFuture(self)
        future._is_complete, future._result = True, result
        return future

    def combined(self, futures: Iterable[StateFuture], what: str = "combine_all") -> StateFuture:
        """Return a future of the list of the results of others.

        Args:
            futures: The others.
            what: The method that combines them, for messages.

        Raises:
            TypeError: They are no futures.
        """
        if not isinstance(futures, Iterable):
            raise TypeError(f"{what} needs futures, not {futures!r}")
        futures = list(futures)
        for future in futures:
            check_future(future, what)
        if not futures:
            return self.completed([])
        result = self.future()
        combination = Combination(len(futures), result._complete)
        for place, future in enumerate(futures):
            future._continue(Part(combination, place))
        return result

    def count_complete(self) -> None:
        """Count that a future of ``future`` is complete."""
        self.record.incomplete -= 1

    def later(self, continuation: Continuation, value: Any) -> None:
        """Run a continuation once the code that runs now has returned."""
        self._check_running("a callback")
        self._ready.append((continuation, value))

    def _check_running(self, what: str) -> None:
        if self.record is None:
            raise RuntimeError(f"{what} is used outside of the callbacks of a record")


def waiting_for(future: StateFuture) -> list[Continuation]:
    """Return what waits for a future, in the order in which it was added.

    No method, since users see those.
    """
    return future._waiting


def passed_on(future: StateFuture, kind: str) -> StateFuture:
    """Return a future that gets the result of another one. No method, likewise.

    Args:
        future: The future whose result it is.
        kind: ``FORWARD``; or ``TRUE`` or ``FALSE``, for a pair of this and the result.
    """
    result = future._machine.future()
    future._continue(Forward(result) if kind == FORWARD else Pair(kind == TRUE, result))
    return result
