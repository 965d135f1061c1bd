"""``KeyedProcess``, the base class of users' declarative steps, and what one declares.

Pickled by value (see ``declarative``).
"""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_spark_runner.transforms.declarative.declared_attributes import (
    RUNNING,
    EventTimer,
    ProcessingTimer,
)
from beam_spark_runner.transforms.declarative.declared_states import DeclaredState, read_again
from beam_spark_runner.transforms.declarative.declaring import (
    DeclarationContext,
    Descriptions,
    callbacks_of,
    coders_of_variables,
    descriptions_of,
    seal,
)
from beam_spark_runner.transforms.declarative.futures import ImmediateMachine, StateFuture
from beam_spark_runner.transforms.declarative.named import (
    DeclarationError,
    Named,
    check_takes,
)
from beam_spark_runner.transforms.declarative.processed import FiredTimer, ReadAddress, Record


class KeyedProcess:
    """What a ``DeclarativeKeyedProcess`` does with each element of a key, timer and window.

    States and timers are attributes of the class. Their methods return futures, and callbacks get
    the results. All callbacks are declared before any element is processed, by the methods that
    begin with ``declare``: once when the pipeline is built, and once in each worker after
    ``setup``. So these methods may use what ``__init__`` has made; callbacks may also use what
    ``setup`` has made. Instances are pickled.

    A subclass defines one of ``declare_process`` and ``process``; or, for a pair of collections,
    ``declare_process1`` and ``declare_process2``. All other methods are optional.

    Example:
        class Count(KeyedProcess):
            count = ValueState("count", VarIntCoder())

            def declare_process(self, ctx):
                number = ctx.declare("number", lambda count: (count or 0) + 1)
                write = ctx.declare("write", self.count.write)
                emit = ctx.declare("emit", ctx.output)

                def element(_):
                    new = self.count.read().then_apply(number)
                    new.then_compose(write)
                    return new.then_accept(emit)

                return element
    """

    def setup(self) -> None:
        """Prepare a worker; called once, before ``declare_process``."""

    def teardown(self) -> None:
        """Release what ``setup`` has made."""

    def process(self, ctx: DeclarationContext, element: tuple[Any, Any]) -> Any:
        """Process an element with callbacks that are not declared.

        Args:
            ctx: The context.
            element: The pair of key and value.
        """
        raise NotImplementedError

    def declare_process(
        self, ctx: DeclarationContext
    ) -> Callable[[tuple[Any, Any]], StateFuture | None]:
        """Declare callbacks, and return the code that processes an element.

        Args:
            ctx: The context.

        Returns:
            A function that gets each element, a pair of key and value.
        """
        raise NotImplementedError

    def declare_process1(
        self, ctx: DeclarationContext
    ) -> Callable[[tuple[Any, Any]], StateFuture | None]:
        """As ``declare_process``, for elements of the first of two collections."""
        raise NotImplementedError

    def declare_process2(
        self, ctx: DeclarationContext
    ) -> Callable[[tuple[Any, Any]], StateFuture | None]:
        """As ``declare_process``, for elements of the second of two collections."""
        raise NotImplementedError

    def declare_on_event_time(
        self, ctx: DeclarationContext
    ) -> Callable[[FiredTimer], StateFuture | None]:
        """As ``declare_process``, for each ``EventTimer`` that fires."""
        raise NotImplementedError

    def declare_on_processing_time(
        self, ctx: DeclarationContext
    ) -> Callable[[FiredTimer], StateFuture | None]:
        """As ``declare_process``, for each ``ProcessingTimer`` that fires."""
        raise NotImplementedError

    def declare_on_window_expiration(
        self, ctx: DeclarationContext
    ) -> Callable[[Any], StateFuture | None]:
        """As ``declare_process``, for each window of a key that expires; the code gets the window.

        A window expires when the watermark has passed its end and the allowed lateness. Afterwards
        the state of the key and window is dropped.
        """
        raise NotImplementedError

    def declare_all(self, tags: Collection[str] = ()) -> "DeclaredProcess":
        """Return all that this process declares; for the DoFn, whose class may be another copy.

        A class of an installed module is not pickled by value, but this package is: a harness that
        has it, too, then has its classes twice.

        Args:
            tags: The tags that outputs may have.
        """
        return DeclaredProcess(self, tags)

    def declared_attributes(self) -> "DeclaredAttributes":
        """Return the states and timers of this process, likewise for the DoFn."""
        return DeclaredAttributes(*_attributes(self), expires=_defines(self, EXPIRATION))


class DeclaredAttributes(NamedTuple):
    """What the DoFn of a process declares to Beam.

    Attributes:
        states: The states, by name.
        timers: The timers, by name.
        expires: Whether the process has ``declare_on_window_expiration``.
    """

    states: Sequence[DeclaredState]
    timers: Sequence[EventTimer | ProcessingTimer]
    expires: bool


_INPUTS = (("process",), ("declare_process",), ("declare_process1", "declare_process2"))
HANDLERS = {
    EventTimer.time_domain: "declare_on_event_time",
    ProcessingTimer.time_domain: "declare_on_processing_time",
}
"""The method that declares the code for timers, by time domain."""
EXPIRATION = "declare_on_window_expiration"
EXPIRATION_TIMER = "on_window_expiration"
"""The name of the timer that fires when a window expires."""


class DeclaredProcess:
    """A process with all that it declares, ready for records.

    Until ``close``, the states and timers of the process are those of the record that ``machine``
    processes.

    Args:
        process: The process.
        tags: The tags that outputs may have.

    Attributes:
        machine: Processes the records.
        bound: The states and timers of the process, by name, with this machine.

    Raises:
        DeclarationError: It declares something that cannot be.
    """

    def __init__(self, process: KeyedProcess, tags: Collection[str]) -> None:
        self.bound: dict[str, Any] = {}
        self._process, self._tags = process, tags
        attributes = process.declared_attributes()
        self._timers = attributes.timers
        self._states = {state.name: state for state in attributes.states}
        self._continued: Callable[[Any], Any] | None = (
            None  # the code of the next record, if it continues
        )
        self.machine = ImmediateMachine()
        self.context = DeclarationContext(self.machine)
        vars(process)[RUNNING] = self
        try:
            self.inputs = self._declared_inputs()
            self.handlers = self._declared_handlers()
            seal(self.context)
        except BaseException:
            self.close()
            raise

    @property
    def descriptions(self) -> Descriptions:
        """The descriptions of all declared callbacks and variables."""
        return descriptions_of(self.context)

    @property
    def callbacks(self) -> Mapping[str, Named]:
        """All declared callbacks by name, also by those that they had in earlier versions."""
        return callbacks_of(self.context)

    def close(self) -> None:
        """Separate the process from the records."""
        vars(self._process).pop(RUNNING, None)

    def run_element(
        self,
        number: int,
        element: tuple[Any, Any],
        context: Mapping[str, Any],
        states: Mapping[str, Any],
        timers: Mapping[str, Any],
    ) -> Sequence[Any]:
        """Process an element in one window.

        Args:
            number: The number of the input.
            element: The pair of key and value.
            context: The other attributes that the context has, by name.
            states: The states of key and window, as the harness has them, by name.
            timers: The timers, likewise.

        Returns:
            The outputs, as a DoFn returns them.
        """
        key, value = element
        of_element = {**context, "key": key, "value": value}
        record = Record("an element", of_element, states, timers, self._tags)
        self.machine.run(record, self._code(self.inputs[number]), element)
        return record.taken()

    def run_timer(
        self,
        handler: str,
        name: str,
        tag: str,
        context: Mapping[str, Any],
        states: Mapping[str, Any],
        timers: Mapping[str, Any],
    ) -> Sequence[Any]:
        """Process a timer that fires, or the end of a window; see ``run_element``.

        Args:
            handler: The method that has declared the code.
            name: The name of the timer.
            tag: Its dynamic tag.
            context: See ``run_element``.
            states: See ``run_element``.
            timers: See ``run_element``.
        """
        is_expiry = handler == EXPIRATION
        kind = "the end of a window" if is_expiry else f"the timer {name!r}"
        record = Record(kind, context, states, timers, self._tags, has_own_time=is_expiry)
        fired = FiredTimer(name, tag, context["timestamp"])
        code = self._code(self.handlers[handler])
        self.machine.run(record, code, context["window"] if is_expiry else fired)
        return record.taken()

    def continue_next(
        self,
        variables: Mapping[str, bytes],
        reads: Sequence[tuple[str, ReadAddress]],
        attach: Callable[[int, StateFuture], None],
    ) -> None:
        """Have the next record not begin, but continue: it has begun in another process, perhaps.

        Args:
            variables: Its variables that are set, encoded, by name.
            reads: The reads that it waits for: the names of their states, and what they read.
            attach: Adds the callbacks that wait for a read, which it gets with its number.
        """

        def continued(_: Any) -> None:
            coders = coders_of_variables(self.context)
            for name, coded in variables.items():
                if name not in coders:
                    raise DeclarationError(
                        f"a stored record has the variable {name!r}, which "
                        f"{type(self._process).__name__} does not declare: declare it"
                    )
                self.machine.record.variables[name] = coders[name].decode(coded)
            for number, (state, address) in enumerate(reads):
                attach(number, read_again(self._states[state].__get__(self._process), address))

        self._continued = continued

    def coded_variables(self, record: Record) -> Mapping[str, bytes]:
        """Return the variables of a record that are set, encoded, by name."""
        coders = coders_of_variables(self.context)
        return {name: coders[name].encode(value) for name, value in record.variables.items()}

    def _code(self, first: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the first code of the next record."""
        continued, self._continued = self._continued, None
        return first if continued is None else continued

    def _declared_inputs(self) -> Sequence[Callable[[Any], Any]]:
        """Return the code for elements of each input."""
        process = self._process
        kinds = [names for names in _INPUTS if any(_defines(process, name) for name in names)]
        if len(kinds) != 1 or not all(_defines(process, name) for name in kinds[0]):
            raise DeclarationError(
                f"{type(process).__name__} must define one of process and declare_process, "
                "or both declare_process1 and declare_process2"
            )
        if kinds[0] == ("process",):
            check_takes(process.process, f"process of {type(process).__name__}", 2)
            context = self.context
            return [lambda element: process.process(context, element)]
        return [self._declared(name) for name in kinds[0]]

    def _declared_handlers(self) -> dict[str, Callable[[Any], Any]]:
        """Return the code for timers and windows, by the name of the method that declares it."""
        handlers = {}
        for kind in (EventTimer, ProcessingTimer):
            name = HANDLERS[kind.time_domain]
            timers = [timer.name for timer in self._timers if timer.time_domain == kind.time_domain]
            if bool(timers) != _defines(self._process, name):
                raise DeclarationError(
                    f"{type(self._process).__name__} has "
                    + (
                        f"the timer {timers[0]!r}, but no {name}"
                        if timers
                        else f"{name}, but no {kind.__name__}"
                    )
                )
            if timers:
                handlers[name] = self._declared(name)
        if _defines(self._process, EXPIRATION):
            handlers[EXPIRATION] = self._declared(EXPIRATION)
        return handlers

    def _declared(self, name: str) -> Callable[[Any], Any]:
        code: Any = getattr(self._process, name)(self.context)
        of_class = f"{name} of {type(self._process).__name__}"
        if not callable(code):
            raise DeclarationError(
                f"{of_class} must return a function, not {code!r}"
                + ("; is a chain not finished?" if hasattr(code, "finish") else "")
            )
        check_takes(code, f"the function that {of_class} returns", 1)
        checked: Callable[[Any], Any] = code
        return checked


def _defines(process: KeyedProcess, name: str) -> bool:
    return getattr(type(process), name) is not getattr(KeyedProcess, name)


def _attributes(
    process: KeyedProcess,
) -> tuple[Sequence[DeclaredState], Sequence[EventTimer | ProcessingTimer]]:
    """Return the states and timers of a process, each by name."""
    found: dict[str, Any] = {}
    for attribute in _declared_by(process):
        if attribute.name == EXPIRATION_TIMER:
            raise DeclarationError(f"the name {EXPIRATION_TIMER!r} is reserved")
        if found.setdefault(attribute.name, attribute) is not attribute:
            raise DeclarationError(f"two states or timers have the name {attribute.name!r}")
    ordered = [found[name] for name in sorted(found)]
    return (
        [each for each in ordered if hasattr(each, "coder")],
        [each for each in ordered if hasattr(each, "time_domain")],
    )


def _declared_by(process: KeyedProcess) -> Iterator[Any]:
    for name, value in vars(process).items():
        if _is_declared(value):
            raise DeclarationError(
                f"{value.name!r} must be an attribute of the class, not of the instance "
                f"(self.{name})"
            )
    for name in dir(type(process)):
        attribute = inspect.getattr_static(type(process), name)
        if _is_declared(attribute):
            yield attribute


def _is_declared(value: Any) -> bool:
    return getattr(type(value), "is_declared_attribute", False) is True
