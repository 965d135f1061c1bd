"""The loop of a DoFn whose ``process`` asks for the timestamp, window or pane of its element."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from apache_beam.runners import common
from apache_beam.transforms import core
from apache_beam.utils.windowed_value import WindowedValue
from typing_extensions import override

from beam_spark_runner.harness.beam.process_loop import ProcessLoop
from beam_spark_runner.harness.beam.result_filter import Output, SendOne
from beam_spark_runner.harness.values.constants import Kind


def _window_of(value: Any, origin: WindowedValue) -> Any:
    (window,) = origin.windows
    return window


_ARGUMENTS: Sequence[tuple[Any, Callable[[Any, WindowedValue], Any]]] = (
    (core.DoFn.ElementParam, lambda value, origin: value),
    (core.DoFn.TimestampParam, lambda value, origin: origin.timestamp),
    (core.DoFn.WindowParam, _window_of),
    (core.DoFn.PaneInfoParam, lambda value, origin: origin.pane_info),
)
"""What a value and its origin give, by the parameter that asks for it."""


def comes_from_origin(default: Any) -> bool:
    """Whether an element and its origin give the argument for which a default asks."""
    return isinstance(default, core._DoFnParam) and any(
        default == parameter for parameter, _ in _ARGUMENTS
    )


class OriginLoop(ProcessLoop):
    """Calls ``process`` with arguments that the origins of the elements give.

    If it asks for the window, an element in several windows is processed in each of them.

    Args:
        fn: The DoFn. ``comes_from_origin`` holds for each parameter that Beam fills in.
        args: The positional arguments, with the values of side inputs.
        kwargs: The keyword arguments, likewise.
        refuses_text: See ``ProcessLoop``.
    """

    def __init__(
        self,
        fn: core.DoFn,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        refuses_text: bool,
    ) -> None:
        super().__init__(self._process_next, refuses_text=refuses_text)
        method = common.MethodWrapper(fn, "process")
        self._is_per_window = any(
            comes_from_origin(default) and default == core.DoFn.WindowParam
            for default in method.defaults
        )
        self._call_with = _call_of(method, args, kwargs)
        self._origins: Iterator[WindowedValue] = iter(())

    @override
    def run(
        self, values: list[Any], origins: list[WindowedValue], kind: Kind, output: Output
    ) -> None:
        if self._is_per_window:
            values, origins = _in_each_window(values, origins)
        if values:
            self._origins = iter(origins)  # ``process`` is called once for each, in order
            super().run(values, origins, kind, output)

    @override
    def one_by_one(self, send_one: SendOne) -> SendOne:
        process_one = super().one_by_one(send_one)

        def process_in_windows(value: Any, origin: WindowedValue) -> None:
            origins = _in_each_window([value], [origin])[1] if self._is_per_window else [origin]
            for each in origins:
                self._origins = iter((each,))
                process_one(value, each)

        return process_in_windows

    def _process_next(self, value: Any) -> Any:
        return self._call_with(value, next(self._origins))


def _call_of(
    method: common.MethodWrapper, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[[Any, WindowedValue], Any]:
    """Return ``process`` as a function of an element and its origin."""
    placeholders, given, keywords = common._get_arg_placeholders(method, list(args), dict(kwargs))
    process: Callable[..., Any] = method.method_value
    filled = [
        (place, argument)
        for place, placeholder in placeholders
        for parameter, argument in _ARGUMENTS
        if placeholder == parameter
    ]
    if len(filled) == len(given) == 2 and not keywords and filled[0][1] is _ARGUMENTS[0][1]:
        second = filled[1][1]
        return lambda value, origin: process(value, second(value, origin))

    def call(value: Any, origin: WindowedValue) -> Any:
        for place, argument in filled:
            given[place] = argument(value, origin)
        return process(*given, **keywords)

    return call


def _in_each_window(
    values: list[Any], origins: list[WindowedValue]
) -> tuple[list[Any], list[WindowedValue]]:
    """Repeat each value whose origin has not one window: once for each window.

    As in Beam, the repeated ones have no pane.
    Source: Beam Python ``PerWindowInvoker.invoke_process``.
    """
    if all(len(origin.windows) == 1 for origin in origins):
        return values, origins
    repeated: list[Any] = []
    parts: list[WindowedValue] = []
    for value, origin in zip(values, origins, strict=True):
        if len(origin.windows) == 1:
            repeated.append(value)
            parts.append(origin)
            continue
        for window in origin.windows:
            repeated.append(value)
            parts.append(WindowedValue(value, origin.timestamp, (window,)))
    return repeated, parts
