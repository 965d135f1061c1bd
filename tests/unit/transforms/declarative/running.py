"""Runs declarative processes on plain Python objects, without a runner."""

from collections.abc import Callable, Sequence
from typing import Any

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.transforms import (
    CombiningState,
    DeclarationContext,
    KeyedProcess,
    OrderedListState,
    ValueState,
)


class Bag:
    """A bag as Beam's harness has it."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def read(self) -> Any:
        return [*self.values]

    def add(self, value: Any) -> None:
        self.values.append(value)

    def clear(self) -> None:
        self.values = []


class Value(Bag):
    """A value as Beam's harness has it."""

    def read(self) -> Any:
        return self.values[0] if self.values else None

    def write(self, value: Any) -> None:
        self.values = [value]


class Sum(Bag):
    """A combining state as Beam's harness has it."""

    def read(self) -> int:
        return sum(self.values)


class OrderedList(Bag):
    """An ordered list as Beam's harness has it."""

    def read(self) -> list[Any]:
        return sorted(self.values)

    def read_range(self, start: Timestamp, end: Timestamp) -> list[Any]:
        return [pair for pair in self.read() if start <= pair[0] < end]

    def clear_range(self, start: Timestamp, end: Timestamp) -> None:
        self.values = [pair for pair in self.values if not start <= pair[0] < end]


class Timer:
    """A timer as Beam's harness has it."""

    def __init__(self) -> None:
        self.times: dict[str, Timestamp] = {}

    def set(self, timestamp: Timestamp, dynamic_timer_tag: str = "") -> None:
        self.times[dynamic_timer_tag] = timestamp

    def clear(self, dynamic_timer_tag: str = "") -> None:
        self.times.pop(dynamic_timer_tag, None)


_KINDS: dict[type[Any], type[Bag]] = {
    CombiningState: Sum,
    OrderedListState: OrderedList,
    ValueState: Value,
}


class Run:
    """A process with the states and timers of one key and window."""

    def __init__(self, process: KeyedProcess, tags: Sequence[str] = ()) -> None:
        attributes = process.declared_attributes()
        self.states: dict[str, Any] = {
            each.name: _KINDS.get(type(each), Bag)() for each in attributes.states
        }
        self.timers = {each.name: Timer() for each in attributes.timers}
        process.setup()
        self.declared = process.declare_all(tags)

    def element(self, value: Any, key: Any = "key", number: int = 0) -> Sequence[Any]:
        context = {"timestamp": Timestamp(5), "window": GlobalWindow(), "side_inputs": {}}
        context["pane"] = "pane"
        return self.declared.run_element(number, (key, value), context, self.states, self.timers)


def of_code(
    declare: Callable[[KeyedProcess, DeclarationContext], Any],
    tags: Sequence[str] = (),
    **more: Any,
) -> Run:
    """Run a process whose ``declare_process`` is a function, with further attributes."""
    return Run(type("Process", (KeyedProcess,), {"declare_process": declare, **more})(), tags)


def process_of(declare: Callable[[Any], Any] | None = None, **more: Any) -> Any:
    """Return a process whose ``declare_process`` is a function of the context, and with more."""
    if declare is not None:
        more["declare_process"] = lambda _, ctx: declare(ctx)
    return type("Process", (KeyedProcess,), more)()


def nothing(*_: Any) -> None:
    """Is any callback."""
