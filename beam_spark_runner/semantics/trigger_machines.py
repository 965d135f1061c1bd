"""Triggers as state machines, which decide whether a window of a key fires.

A trigger is a tree of numbered nodes. The state of a key and window is flat, by the numbers of
nodes, so that it can be stored, and merged when windows merge.

Sources: Trigger in beam_runner_api.proto; the TriggerStateMachines of Beam's Java runners
(org.apache.beam.runners.core.triggers).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from beam_spark_runner.core.time import MAX_US
from beam_spark_runner.semantics.timers import Instant


@dataclass(slots=True)
class TriggerState:
    """The state of a trigger for a key and window, by the numbers of its nodes.

    Attributes:
        finished: The nodes that will not fire again, unless a parent resets them.
        counts: The number of elements since the node was reset.
        due_us: The processing time from which on the node fires.
    """

    finished: set[int] = field(default_factory=set)
    counts: dict[int, int] = field(default_factory=dict)
    due_us: dict[int, int] = field(default_factory=dict)

    def forget(self, numbers: range) -> None:
        """Remove the state of some nodes."""
        for number in numbers:
            self.finished.discard(number)
            self.counts.pop(number, None)
            self.due_us.pop(number, None)


class Trigger(ABC):
    """A node of a trigger. The argument ``last_us`` is the window's largest timestamp."""

    def __init__(self, numbers: range, parts: Sequence["Trigger"] = ()) -> None:
        """Create a node of the tree.

        Args:
            numbers: The node's own number, then those of all its descendants.
            parts: The children of the node.
        """
        self.number = numbers.start
        self.numbers = numbers
        self.parts = tuple(parts)

    def is_finished(self, state: TriggerState) -> bool:
        """Return whether the node will not fire again."""
        return self.number in state.finished

    def finish(self, state: TriggerState, is_finished: bool = True) -> None:
        """Set whether the node will not fire again."""
        if is_finished:
            state.finished.add(self.number)
        else:
            state.finished.discard(self.number)

    def reset(self, state: TriggerState) -> None:
        """Remove the state of the node and all its descendants."""
        state.forget(self.numbers)

    def add(self, state: TriggerState, now: Instant, last_us: int) -> None:
        """Take one element into account."""
        for part in self.parts:
            if not part.is_finished(state):
                part.add(state, now, last_us)

    @abstractmethod
    def merge(
        self, merging: Sequence[TriggerState], state: TriggerState, now: Instant, last_us: int
    ) -> None:
        """Compute the state of a merged window from the states of the windows in it.

        Args:
            merging: The states of these windows, including the earlier state of the merged window
                itself, if it has one.
            state: The new state of the merged window, which is changed.
            now: The instant at which they merge.
            last_us: The largest timestamp of the merged window.
        """

    @abstractmethod
    def should_fire(self, state: TriggerState, now: Instant, last_us: int) -> bool:
        """Return whether the window fires; called only if this node has not finished."""

    @abstractmethod
    def fire(self, state: TriggerState, now: Instant, last_us: int) -> None:
        """Update the state because the window fires; called only if ``should_fire`` was true."""

    def _finished_in(self, merging: Sequence[TriggerState]) -> Iterator[bool]:
        return (self.is_finished(state) for state in merging)


class AfterEndOfWindow(Trigger):
    """Fires once the watermark has passed the end; before and after that, as its parts do."""

    def __init__(self, numbers: range, parts: Sequence[Trigger], *, has_late: bool) -> None:
        super().__init__(numbers, parts)
        self._early = parts[0]
        self._late = parts[1] if has_late else None

    # That the early part has finished means that the pane at the end of the window has fired.

    @override
    def merge(
        self, merging: Sequence[TriggerState], state: TriggerState, now: Instant, last_us: int
    ) -> None:
        early, late = self._early, self._late
        if all(early._finished_in(merging)) and now.watermark_us > last_us:
            early.finish(state)
            if late is not None:
                late.merge(merging, state, now, last_us)
            else:
                self.finish(state)
        else:
            early.merge(merging, state, now, last_us)
            early.finish(state, False)

    @override
    def add(self, state: TriggerState, now: Instant, last_us: int) -> None:
        part = self._late if self._early.is_finished(state) else self._early
        if part is not None:
            part.add(state, now, last_us)

    @override
    def should_fire(self, state: TriggerState, now: Instant, last_us: int) -> bool:
        if not self._early.is_finished(state):
            return now.watermark_us > last_us or self._early.should_fire(state, now, last_us)
        return self._late is not None and self._late.should_fire(state, now, last_us)

    @override
    def fire(self, state: TriggerState, now: Instant, last_us: int) -> None:
        if self._early.is_finished(state):
            assert self._late is not None
            self._late.fire(state, now, last_us)
            self._late.reset(state)  # late firings repeat even without Repeatedly
        elif now.watermark_us > last_us:
            self._early.reset(state)
            self._early.finish(state)
            if self._late is None:
                self.finish(state)
        else:
            self._early.fire(state, now, last_us)
            self._early.reset(state)


class Default(Trigger):
    """Fires whenever there are new elements, once the watermark has passed the window's end."""

    @override
    def merge(
        self, merging: Sequence[TriggerState], state: TriggerState, now: Instant, last_us: int
    ) -> None:
        pass

    @override
    def should_fire(self, state: TriggerState, now: Instant, last_us: int) -> bool:
        return now.watermark_us > last_us

    @override
    def fire(self, state: TriggerState, now: Instant, last_us: int) -> None:
        pass


class Always(Default):
    """Fires at each evaluation."""

    @override
    def should_fire(self, state: TriggerState, now: Instant, last_us: int) -> bool:
        return True


class Never(Default):
    """Never fires; all elements are in the pane that is emitted when the window expires."""

    @override
    def should_fire(self, state: TriggerState, now: Instant, last_us: int) -> bool:
        return False


class _Once(Trigger):
    """A leaf that fires once."""

    @override
    def merge(
        self, merging: Sequence[TriggerState], state: TriggerState, now: Instant, last_us: int
    ) -> None:
        if any(self._finished_in(merging)):
            self.finish(state)
        else:
            self._merge(merging, state)

    @abstractmethod
    def _merge(self, merging: Sequence[TriggerState], state: TriggerState) -> None:
        """Merge the other state of the node; called if it has not finished in any window."""

    @override
    def fire(self, state: TriggerState, now: Instant, last_us: int) -> None:
        self.reset(state)
        self.finish(state)


class ElementCount(_Once):
    """Fires once a number of elements have arrived."""

    def __init__(self, numbers: range, count: int) -> None:
        super().__init__(numbers)
        self._count = count

    @override
    def add(self, state: TriggerState, now: Instant, last_us: int) -> None:
        state.counts[self.number] = state.counts.get(self.number, 0) + 1

    @override
    def _merge(self, merging: Sequence[TriggerState], state: TriggerState) -> None:
        if count := sum(part.counts.get(self.number, 0) for part in merging):
            state.counts[self.number] = count

    @override
    def should_fire(self, state: TriggerState, now: Instant, last_us: int) -> bool:
        return state.counts.get(self.number, 0) >= self._count


class AfterProcessingTime(_Once):
    """Fires at a processing time that is computed from that of the first element."""

    def __init__(self, numbers: range, due_us: Callable[[int], int]) -> None:
        super().__init__(numbers)
        self._due_us = due_us

    @override
    def add(self, state: TriggerState, now: Instant, last_us: int) -> None:
        state.due_us.setdefault(self.number, self._due_us(now.clock_us))

    @override
    def _merge(self, merging: Sequence[TriggerState], state: TriggerState) -> None:
        if due := [part.due_us[self.number] for part in merging if self.number in part.due_us]:
            state.due_us[self.number] = min(due)

    @override
    def should_fire(self, state: TriggerState, now: Instant, last_us: int) -> bool:
        return now.clock_us >= state.due_us.get(self.number, MAX_US + 1)


class Parallel(Trigger):
    """All parts get all elements; it fires and finishes once any, or all, of the parts do."""

    def __init__(
        self, numbers: range, parts: Sequence[Trigger], enough: Callable[[Iterator[bool]], bool]
    ) -> None:
        super().__init__(numbers, parts)
        self._enough = enough

    @override
    def merge(
        self, merging: Sequence[TriggerState], state: TriggerState, now: Instant, last_us: int
    ) -> None:
        for part in self.parts:
            part.merge(merging, state, now, last_us)
        self._update(state)

    @override
    def should_fire(self, state: TriggerState, now: Instant, last_us: int) -> bool:
        return self._enough(
            part.is_finished(state) or part.should_fire(state, now, last_us) for part in self.parts
        )

    @override
    def fire(self, state: TriggerState, now: Instant, last_us: int) -> None:
        for part in self.parts:
            if part.is_finished(state):
                continue
            if part.should_fire(state, now, last_us):
                part.fire(state, now, last_us)
            else:  # its state is about elements that are in this pane
                part.reset(state)
        self._update(state)

    def _update(self, state: TriggerState) -> None:
        self.finish(state, self._enough(part.is_finished(state) for part in self.parts))


class AfterEach(Trigger):
    """Runs its parts one after the other: the next one begins once a part has finished."""

    def _current(self, state: TriggerState) -> Trigger | None:
        return next((part for part in self.parts if not part.is_finished(state)), None)

    @override
    def add(self, state: TriggerState, now: Instant, last_us: int) -> None:
        if (part := self._current(state)) is not None:
            part.add(state, now, last_us)

    @override
    def merge(
        self, merging: Sequence[TriggerState], state: TriggerState, now: Instant, last_us: int
    ) -> None:
        for part in self.parts:
            part.merge(merging, state, now, last_us)
            if not part.is_finished(state):
                return  # the parts after it have no state yet
        self.finish(state)

    @override
    def should_fire(self, state: TriggerState, now: Instant, last_us: int) -> bool:
        part = self._current(state)
        return part is not None and part.should_fire(state, now, last_us)

    @override
    def fire(self, state: TriggerState, now: Instant, last_us: int) -> None:
        part = self._current(state)
        assert part is not None
        part.fire(state, now, last_us)
        self.finish(state, self._current(state) is None)


class OrFinally(Trigger):
    """Fires as the first part does, until the second part fires: that is the last time."""

    @override
    def merge(
        self, merging: Sequence[TriggerState], state: TriggerState, now: Instant, last_us: int
    ) -> None:
        for part in self.parts:
            part.merge(merging, state, now, last_us)
        self._update(state)

    @override
    def should_fire(self, state: TriggerState, now: Instant, last_us: int) -> bool:
        return any(part.should_fire(state, now, last_us) for part in self.parts)

    @override
    def fire(self, state: TriggerState, now: Instant, last_us: int) -> None:
        main, final = self.parts
        if final.should_fire(state, now, last_us):
            final.fire(state, now, last_us)
        if main.should_fire(state, now, last_us):
            main.fire(state, now, last_us)
        self._update(state)

    def _update(self, state: TriggerState) -> None:
        self.finish(state, any(part.is_finished(state) for part in self.parts))


class Repeatedly(Trigger):
    """Resets its part whenever that has finished."""

    @override
    def merge(
        self, merging: Sequence[TriggerState], state: TriggerState, now: Instant, last_us: int
    ) -> None:
        (part,) = self.parts
        part.merge(merging, state, now, last_us)

    @override
    def should_fire(self, state: TriggerState, now: Instant, last_us: int) -> bool:
        return self.parts[0].should_fire(state, now, last_us)

    @override
    def fire(self, state: TriggerState, now: Instant, last_us: int) -> None:
        (part,) = self.parts
        part.fire(state, now, last_us)
        if part.is_finished(state):
            part.reset(state)
