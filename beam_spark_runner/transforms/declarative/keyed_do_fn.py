"""The DoFn that runs a ``KeyedProcess``, on every runner.

Its methods get states and timers as Beam's DoFns get them: by parameters, which are not in their
code but in their ``__signature__``, since each process has others.

Pickled by value (see ``declarative``).
"""

import contextlib
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.coders import Coder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import TimerSpec, on_timer
from apache_beam.typehints.decorators import IOTypeHints
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Duration
from typing_extensions import override

from beam_spark_runner.transforms.declarative.declared_states import spec_of
from beam_spark_runner.transforms.declarative.futures import ImmediateMachine
from beam_spark_runner.transforms.declarative.keyed_process import (
    EXPIRATION,
    EXPIRATION_TIMER,
    HANDLERS,
    DeclaredAttributes,
    DeclaredProcess,
    KeyedProcess,
)
from beam_spark_runner.transforms.declarative.shared_values import forget_shared, make_shared

_Parameters = dict[str, Any]  # default values, which say what Beam passes, by name
SIDE_INPUT = "side_"
"""Begins the parameters of side inputs: their own names may be those of other parameters."""
SHOWN = "_beam_spark_runner_shown_element"
"""The attribute of an exception that has its element as users know it."""
_OF_ELEMENTS: _Parameters = {
    "element": beam.DoFn.ElementParam,
    "timestamp": beam.DoFn.TimestampParam,
    "window": beam.DoFn.WindowParam,
    "pane": beam.DoFn.PaneInfoParam,
}
_OF_TIMERS: _Parameters = {
    "key": beam.DoFn.KeyParam,
    "timestamp": beam.DoFn.TimestampParam,
    "window": beam.DoFn.WindowParam,
    "tag": beam.DoFn.DynamicTimerTagParam,
}


def tagged(pair: tuple[Any, Any], number: int, coder: Coder) -> tuple[Any, bytes]:
    """Encode the value of an element of one of two collections, with the number of that."""
    key, value = pair
    return key, bytes([number]) + coder.encode(value)


class KeyedProcessDoFn(beam.DoFn):  # type: ignore[misc]
    """Runs a process.

    Args:
        process: The process.
        value_coders: The coders of values of two inputs, which are ``tagged``; none: there is one.
        lateness_us: For runners that call nothing when a window expires: the allowed lateness. A
            timer takes the place of that call, and no single entries of maps are read. None: the
            runner is ours.
        tags: The tags that outputs may have.
    """

    is_declarative = True
    """Recognises such DoFns also if their class was pickled by value, and so is another one."""

    def __init__(
        self,
        process: KeyedProcess,
        value_coders: Sequence[Coder] = (),
        lateness_us: int | None = None,
        tags: Sequence[str] = (),
    ) -> None:
        self.arguments = process, value_coders, lateness_us, tags
        self._lateness_us = lateness_us
        self._decoders = [coder.decode for coder in value_coders]
        attributes = process.declared_attributes()
        self._state_names = [state.name for state in attributes.states]
        self._timer_names = [timer.name for timer in attributes.timers]
        self.expires = attributes.expires
        if self.expires:
            self._timer_names.append(EXPIRATION_TIMER)
        self._make_methods(attributes)

    @property
    def machine(self) -> ImmediateMachine:
        """What processes the records; after ``setup``."""
        return self._declared.machine

    @property
    def declared(self) -> DeclaredProcess:
        """What the process declares; after ``setup``."""
        return self._declared

    @override
    def __reduce__(self) -> Any:
        return type(self), self.arguments

    def _make_methods(self, attributes: DeclaredAttributes) -> None:
        """Make the methods that Beam calls, with their parameters."""
        has_maps = self._lateness_us is None
        states = {
            f"state_{number}": beam.DoFn.StateParam(spec_of(state, has_maps=has_maps))
            for number, state in enumerate(attributes.states)
        }
        domains = {timer.name: timer.time_domain for timer in attributes.timers}
        specs = [
            TimerSpec(name, domains.get(name, TimeDomain.WATERMARK)) for name in self._timer_names
        ]
        timers = {
            f"timer_{number}": beam.DoFn.TimerParam(spec) for number, spec in enumerate(specs)
        }
        self._bind("process", _process, {**_OF_ELEMENTS, **states, **timers})
        self._handlers: dict[str, tuple[str, str]] = {}  # handler and name, by the name of the spec
        for number, (name, spec) in enumerate(zip(self._timer_names, specs, strict=True)):
            handler = EXPIRATION if name == EXPIRATION_TIMER else HANDLERS[spec.time_domain]
            self._handlers[spec.name] = handler, name
            code = _on_timer(name, handler)
            method = self._bind(f"on_timer_{number}", code, {**_OF_TIMERS, **states, **timers})
            on_timer(spec)(method)

    def _bind(self, name: str, code: Callable[..., Any], given: _Parameters) -> Callable[..., Any]:
        """Make a method of this instance, whose signature says what Beam passes."""

        def method(do_fn: Any, *args: Any, **kwargs: Any) -> Any:
            return code(do_fn, *args, **kwargs)

        parameter = inspect.Parameter
        method.__name__ = name
        method.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                parameter("do_fn", parameter.POSITIONAL_OR_KEYWORD),
                *(
                    parameter(each, parameter.POSITIONAL_OR_KEYWORD, default=what)
                    for each, what in given.items()
                ),
                parameter("sides", parameter.VAR_KEYWORD),
            ]
        )
        setattr(self, name, types.MethodType(method, self))
        return method

    def default_type_hints(self) -> IOTypeHints:
        """Return no hints: the transform declares the types."""
        return IOTypeHints.empty()

    @override
    def setup(self) -> None:
        process, *_, tags = self.arguments
        make_shared(process)
        process.setup()
        self._declared = process.declare_all(tags)

    @override
    def teardown(self) -> None:
        process, *_ = self.arguments
        self._declared.close()
        process.teardown()
        forget_shared(process)

    def run_element(
        self,
        element: tuple[Any, Any],
        context: Mapping[str, Any],
        given: Sequence[Any],
    ) -> Sequence[Any]:
        """Process an element; see ``DeclaredProcess.run_element``.

        Args:
            element: The element, as Beam passes it.
            context: The other attributes that the context has, by name.
            given: The states and timers, as Beam passes them.
        """
        number = 0
        if self._decoders:
            key, coded = element
            number = coded[0]
            element = key, self._decoders[number](coded[1:])
        states, timers = self._by_name(given)
        if self.expires and self._lateness_us is not None:
            expires = context["window"].max_timestamp() + Duration(micros=self._lateness_us)
            timers[EXPIRATION_TIMER].set(min(expires, MAX_TIMESTAMP))
        try:
            return self._declared.run_element(number, element, context, states, timers)
        except Exception as error:
            if self._decoders:
                with contextlib.suppress(Exception):  # it may define __setattr__ or slots
                    setattr(error, SHOWN, element)
            raise

    def run_timer(
        self, handler: str, name: str, tag: str, context: Mapping[str, Any], given: Sequence[Any]
    ) -> Sequence[Any]:
        """Process a timer; see ``DeclaredProcess.run_timer``."""
        if handler == EXPIRATION and self._lateness_us is None:
            # This runner fires it after the last timestamp, and others at the last one.
            context = {**context, "timestamp": context["timestamp"] - Duration(micros=1_000)}
        return self._declared.run_timer(handler, name, tag, context, *self._by_name(given))

    def fire(
        self, family: str, tag: str, context: Mapping[str, Any], given: Sequence[Any]
    ) -> Sequence[Any]:
        """Process a timer, in a harness that does not call the methods of this DoFn.

        Args:
            family: The timer family.
            tag: See ``run_timer``.
            context: See ``run_timer``.
            given: See ``run_element``.
        """
        return self.run_timer(*self._handlers[family], tag, context, given)

    def _by_name(self, given: Sequence[Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the states and the timers among the arguments of a method."""
        count = len(self._state_names)
        return (
            dict(zip(self._state_names, given[:count], strict=True)),
            dict(zip(self._timer_names, given[count:], strict=True)),
        )


def _process(
    do_fn: KeyedProcessDoFn,
    element: tuple[Any, Any],
    timestamp: Any,
    window: Any,
    pane: Any,
    *given: Any,
    **sides: Any,
) -> Sequence[Any]:
    side_inputs = {name.removeprefix(SIDE_INPUT): side for name, side in sides.items()}
    context = {"timestamp": timestamp, "window": window, "pane": pane, "side_inputs": side_inputs}
    return do_fn.run_element(element, context, given)


def _on_timer(name: str, handler: str) -> Callable[..., Any]:
    def on_timer(
        do_fn: KeyedProcessDoFn, key: Any, timestamp: Any, window: Any, tag: str, **given: Any
    ) -> Sequence[Any]:
        context = {"key": key, "timestamp": timestamp, "window": window}
        return do_fn.run_timer(handler, name, tag, context, [*given.values()])

    return on_timer
