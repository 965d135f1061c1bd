"""Calls ``process`` of a stateful DoFn with arguments that are updated only when they change.

Beam's invoker assembles all arguments for each element. Here the arguments that depend on key and
window are kept until these change, and likewise those that depend on timestamp and pane.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from apache_beam.internal.util import insert_values_in_args
from apache_beam.runners import common
from apache_beam.runners.worker.bundle_processor import StateBackedSideInputMap
from apache_beam.transforms import core
from apache_beam.utils.windowed_value import WindowedValue

from beam_spark_runner.harness.beam.current_element import CurrentElement
from beam_spark_runner.harness.beam.key_states import KeyStates
from beam_spark_runner.harness.beam.step_choice import is_given_by_beam

_KNOWN = (
    core.DoFn.ElementParam,
    core.DoFn.KeyParam,
    core.DoFn.WindowParam,
    core.DoFn.WindowedValueParam,
    core.DoFn.TimestampParam,
    core.DoFn.PaneInfoParam,
    core.DoFn.SideInputParam,
)

_MAX_WINDOWS = 64  # of one key, whose arguments are kept: its elements may be in any order


def can_call(fn: core.DoFn) -> bool:
    """Whether ``KeyedCall`` supports all parameters of ``process``."""
    gives_batches = getattr(fn.process, "_beam_yields_batches", False)
    return not (fn._process_batch_defined or gives_batches) and all(
        map(_is_known, common.MethodWrapper(fn, "process").defaults)
    )


def _is_known(default: Any) -> bool:
    return (
        not is_given_by_beam(default)
        or isinstance(default, (core.DoFn.StateParam, core.DoFn.TimerParam))
        or (isinstance(default, core._DoFnParam) and default in _KNOWN)
    )


class KeyedCall:
    """Calls ``process`` of one DoFn, for one key after another. Threads: the bundle's.

    Args:
        fn: A DoFn for which ``can_call`` holds.
        args: The positional arguments of the ParDo, with placeholders for side inputs.
        kwargs: The keyword arguments, likewise.
        views: The side inputs, each a mapping from windows to views.
        states: The state and timers of the current key.
        on_window: Called with a key and the origin of one of its elements, before the first call
            in a window and perhaps again; None: not needed.
    """

    def __init__(
        self,
        fn: core.DoFn,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        views: Sequence[StateBackedSideInputMap],
        states: KeyStates,
        on_window: Callable[[Any, WindowedValue], None] | None,
    ) -> None:
        method = common.MethodWrapper(fn, "process")
        self._process: Callable[..., Any] = method.method_value
        placeholders, self._given_args, self._given_kwargs = common._get_arg_placeholders(
            method, list(args), dict(kwargs)
        )
        self._views = views
        self._states = states
        self._on_window = on_window

        def places(kind: Any) -> list[int]:
            return [place for place, placeholder in placeholders if placeholder == kind]

        self._elements = places(core.DoFn.ElementParam)
        self._keys = places(core.DoFn.KeyParam)
        self._windows = places(core.DoFn.WindowParam)
        self._windowed_values = places(core.DoFn.WindowedValueParam)
        self._timestamps = places(core.DoFn.TimestampParam)
        self._panes = places(core.DoFn.PaneInfoParam)
        self._state_specs = [
            (place, placeholder.state_spec)
            for place, placeholder in placeholders
            if isinstance(placeholder, core.DoFn.StateParam)
        ]
        self._timer_specs = [
            (place, placeholder.timer_spec)
            for place, placeholder in placeholders
            if isinstance(placeholder, core.DoFn.TimerParam)
        ]
        self._args: list[Any] = []
        self._kwargs: dict[str, Any] = {}
        self._window: Any = None  # for which the arguments are set
        # By identity of the window, which is part of the value so that it stays the only one.
        self._arguments: dict[int, tuple[Any, list[Any], dict[str, Any]]] = {}
        self._origin: WindowedValue | None = None  # for which the arguments are set
        # What the previous key leaves: its only window, its arguments, ``states.keepings``.
        self._kept: tuple[Any, list[Any], dict[str, Any], int] | None = None
        self._keepings = 0  # ``states.keepings`` when the arguments were set
        self.current_element = CurrentElement()

    def use(self, states: KeyStates) -> None:
        """Continue with a key that has its own state objects."""
        if states is not self._states:
            self._states = states
            self.forget()

    def states_and_timers(self, key: Any, window: Any, timestamp: Any, pane: Any) -> list[Any]:
        """Return the states and timers of a key and window, in the order of the parameters."""
        states = self._states
        return [
            *(states.get_state(spec, key, window) for _, spec in self._state_specs),
            *(
                states.get_timer(spec, key, window, timestamp, pane)
                for _, spec in self._timer_specs
            ),
        ]

    def forget(self) -> None:
        """Forget the arguments, before another key or other state objects."""
        self._window = self._origin = self._kept = None
        self._arguments.clear()

    def end_key(self) -> None:
        """Forget the arguments, except for what another key in the same window can use."""
        window, has_one_window = self._window, len(self._arguments) == 1
        self.forget()
        if window is not None and has_one_window:
            self._kept = window, self._args, self._kwargs, self._keepings

    def reset(self) -> None:
        """Forget arguments and views, before another bundle, whose side inputs may differ."""
        self.forget()
        for view in self._views:
            view.reset()

    def run(
        self,
        values: list[Any],
        origins: list[WindowedValue],
        handle: Callable[[WindowedValue, Any], None],
    ) -> None:
        """Call ``process`` for each value of a key in each of its windows.

        Args:
            values: KVs.
            origins: The timestamp, windows and pane of each.
            handle: Called with the origin of the value in one window and the result of
                ``process``, unless that is None.
        """
        self._run(self.current_element.iterate(values), origins, handle)

    def _run(
        self,
        values: Iterable[Any],
        origins: Iterable[WindowedValue],
        handle: Callable[[WindowedValue, Any], None],
    ) -> None:
        process, places = self._process, self._elements
        for value, origin in zip(values, origins, strict=True):
            if origin is not self._origin:
                if len(origin.windows) != 1:
                    for window in origin.windows:
                        timestamp, pane = origin.timestamp, origin.pane_info
                        part = WindowedValue(value, timestamp, (window,), pane)
                        self._run((value,), (part,), handle)
                    continue
                self._bind(value[0], origin)
            args = self._args
            for place in places:
                args[place] = value
            if self._windowed_values:
                for place in self._windowed_values:
                    args[place] = origin.with_value(value)
            result = process(*args, **self._kwargs)
            if result is not None:
                handle(origin, result)

    def _bind(self, key: Any, origin: WindowedValue) -> None:
        self._origin = None  # in case that something below raises
        (window,) = origin.windows
        if window is not self._window:
            arguments = self._arguments.get(id(window))
            if arguments is not None:
                self._window, self._args, self._kwargs = arguments
            elif self._window is None or window != self._window:
                self._bind_window(key, window, origin)
        for place in self._timestamps:
            self._args[place] = origin.timestamp
        for place in self._panes:
            self._args[place] = origin.pane_info
        for place, _ in self._timer_specs:
            self._args[place].move_to(origin.timestamp_micros, origin.pane_info)
        self._origin = origin

    def _bind_window(self, key: Any, window: Any, origin: WindowedValue) -> None:
        self._window = None  # in case that something below raises
        kept, self._kept = self._kept, None
        if kept is not None and kept[0] is window and self._states.use_kept(key, kept[3]):
            args, kwargs = kept[1], kept[2]
            payload = key, origin.pane_info
            for place in self._keys:
                args[place] = key
            for place, _ in self._timer_specs:
                args[place].renew(origin.timestamp_micros, payload)
        else:
            args, kwargs = self._new_arguments(key, window, origin)
        self._keepings = self._states.keepings
        if self._on_window is not None:
            self._on_window(key, origin)
        if len(self._arguments) >= _MAX_WINDOWS:
            self._arguments.clear()
        self._arguments[id(window)] = self._window, self._args, self._kwargs = window, args, kwargs

    def _new_arguments(
        self, key: Any, window: Any, origin: WindowedValue
    ) -> tuple[list[Any], dict[str, Any]]:
        args, kwargs = [*self._given_args], {**self._given_kwargs}
        if self._views:
            views = [view[window] for view in self._views]
            args, kwargs = insert_values_in_args(args, kwargs, views)
        for place in self._keys:
            args[place] = key
        for place in self._windows:
            args[place] = window
        for place, spec in self._state_specs:
            args[place] = self._states.get_state(spec, key, window)
        for place, spec in self._timer_specs:
            args[place] = self._states.get_timer(
                spec, key, window, origin.timestamp, origin.pane_info
            )
        return args, kwargs
