"""What is processed: an element in one window, a timer that fires, or the end of a window.

Pickled by value (see ``declarative``).
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol

from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import PANE_INFO_UNKNOWN, WindowedValue

from beam_spark_runner.transforms.declarative.returned import check_result


class FiredTimer(NamedTuple):
    """A timer that fires.

    Attributes:
        name: The name of the timer.
        tag: Its dynamic tag; empty for most.
        timestamp: The time for which it was set.
    """

    name: str
    tag: str
    timestamp: Timestamp


class Record:
    """A record with all that its callbacks may use.

    Args:
        kind: What it is, for messages.
        context: The attributes that ``DeclarationContext`` has for it, by name.
        states: The states of its key and window, as the harness has them, by name.
        timers: The timers of its key and window, likewise.
        tags: The tags that outputs may have.
        has_own_time: Whether outputs have its timestamp, which is not the one that Beam would give.

    Attributes:
        variables: Its variables that are set, by name.
        incomplete: How many of its futures are not complete.
        waits: How many of its requests have no result yet.
    """

    def __init__(
        self,
        kind: str,
        context: Mapping[str, Any],
        states: Mapping[str, Any],
        timers: Mapping[str, Any],
        tags: Collection[str],
        *,
        has_own_time: bool = False,
    ) -> None:
        self.kind, self.context, self._has_own_time = kind, context, has_own_time
        self.states, self.timers, self._tags = states, timers, tags
        self.variables: dict[str, Any] = {}
        self.incomplete = self.waits = 0
        self._outputs: list[Any] = []  # as a DoFn returns them

    def emit(self, value: Any, tag: str | None, timestamp: Any) -> None:
        """Add an output, in the window of the record; see ``DeclarationContext.output``."""
        check_result(value, "an output")
        if tag is not None and tag not in self._tags:
            known = ", ".join(map(repr, self._tags)) or "no tags"
            raise ValueError(
                f"there is no output with the tag {tag!r}: with_outputs(…) of the "
                f"DeclarativeKeyedProcess names {known}; outputs without a tag are the main ones"
            )
        if timestamp is None and self._has_own_time:
            timestamp = self.context["timestamp"]
        if timestamp is not None:
            pane = self.context.get("pane", PANE_INFO_UNKNOWN)
            window = self.context["window"]
            value = WindowedValue(value, Timestamp.of(timestamp), (window,), pane)
        self._outputs.append(value if tag is None else TaggedOutput(tag, value))

    def taken(self) -> list[Any]:
        """Return the outputs since the last call, as a DoFn returns them."""
        outputs, self._outputs = self._outputs, []
        return outputs


class ReadAddress(NamedTuple):
    """What a read reads, so that it can be made again, perhaps in another process.

    Attributes:
        method: The method of the state; with arguments, the one that takes them encoded.
        arguments: They consist of None, numbers, texts and bytes.
    """

    method: str
    arguments: tuple[Any, ...] = ()


class Read(NamedTuple):
    """An access that changes nothing, so that reads may overtake each other.

    Attributes:
        address: What it reads; None: it cannot be made again.
        is_lazy: Whether the result reads the state when it is iterated.
    """

    address: ReadAddress | None
    is_lazy: bool


class Requests(Protocol):
    """Accesses states that have to be waited for."""

    def ask(
        self,
        record: Any,
        name: str,
        access: Callable[[], Any],
        future: Any,
        read: Read | None,
    ) -> tuple[Any] | None:
        """Access a state, now or later.

        Args:
            record: The record whose code runs.
            name: The name of the state.
            access: Accesses the state, and returns the result.
            future: The future of the result.
            read: The read; None: it is a change.

        Returns:
            The result; None: ``ImmediateMachine.resume`` will be called with it.
        """
        ...
