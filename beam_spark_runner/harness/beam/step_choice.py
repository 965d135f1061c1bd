"""Chooses the loop that runs a DoFn."""

import functools
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple, TypeAlias

import apache_beam as beam
from apache_beam.io.filebasedsource import _ReadRange
from apache_beam.runners import common
from apache_beam.transforms import core

from beam_spark_runner.harness.beam.grouped_reads import RangesLoop
from beam_spark_runner.harness.beam.origin_loop import OriginLoop, comes_from_origin
from beam_spark_runner.harness.beam.process_loop import ProcessLoop
from beam_spark_runner.harness.beam.step_loops import (
    Filtering,
    Mapped,
    MappedTuples,
    NewResultsLoop,
    Step,
)
from beam_spark_runner.harness.values.closed import Closed
from beam_spark_runner.harness.values.constants import is_plain, is_plain_data


class Arguments(NamedTuple):
    """The arguments of ``process`` that follow the element.

    Attributes:
        args: The positional arguments.
        kwargs: The keyword arguments.
        side_inputs: Those of the arguments that are side inputs.
    """

    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    side_inputs: Sequence[Any] = ()

    def are_data(self) -> bool:
        """Whether all are plain, or side inputs of plain values, which no function may change."""
        return all(
            is_plain(argument)
            or (any(argument is one for one in self.side_inputs) and is_plain_data(argument))
            for argument in (*self.args, *self.kwargs.values())
        )


_NO_ARGUMENTS = Arguments()


def is_given_by_beam(default: Any) -> bool:
    """Whether a default asks for an argument of Beam, such as the timestamp of the element."""
    return isinstance(default, core._DoFnParam) or (
        isinstance(default, type) and issubclass(default, core._DoFnParam)
    )


def is_known(default: Any) -> bool:
    """Whether a loop gives the argument for which a default asks, or the default is ordinary."""
    return not is_given_by_beam(default) or comes_from_origin(default)


def step_for(fn: beam.DoFn, arguments: Arguments = _NO_ARGUMENTS) -> Step:
    """Choose the loop for a DoFn whose ``process`` takes the element and constant arguments.

    Beam wraps the function of a ``Map`` in one that returns a list of one result. This wrapper is
    recognised by its code, and the user's function is found in its closure.
    """
    process = fn.process
    args, keywords, _ = arguments
    if type(fn) is core._KeyWithNone:  # in front of every global combiner
        return Mapped(_key_with_none, closed=Closed.of(_key_with_none))
    # A function of FlatMap may return a string, as an iterable of characters.
    is_users_class = not isinstance(fn, core.CallableWrapperDoFn)
    if type(fn) is _ReadRange and not args and not keywords:
        return RangesLoop(fn)
    if any(map(is_given_by_beam, common.MethodWrapper(fn, "process").defaults)):
        return OriginLoop(fn, args, keywords, refuses_text=is_users_class)
    if getattr(fn, "makes_new_results", False) is True:  # only DoFns of this package have it
        return NewResultsLoop(_bind(process, args, keywords))
    if isinstance(fn, core.CallableWrapperDoFn) and hasattr(process, "__code__"):
        loop = _loops().get(process.__code__)
        if loop is not None:
            cells = dict(zip(process.__code__.co_freevars, process.__closure__ or (), strict=True))
            function = cells["fn"].cell_contents
            closed = Closed.of(function) if arguments.are_data() else None
            if loop is Mapped and not keywords:
                return Mapped(function, args, closed)
            return loop(_bind(function, args, keywords), closed=closed)
    return ProcessLoop(_bind(process, args, keywords), refuses_text=is_users_class)


def _key_with_none(value: Any) -> tuple[None, Any]:
    return None, value


def _bind(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[..., Any]:
    if not args and not kwargs:
        return function
    return lambda *values: function(*values, *args, **kwargs)  # of MapTuple, several


_Loop: TypeAlias = type[Mapped] | type[Filtering]


@functools.cache
def _loops() -> dict[CodeType, _Loop]:
    """Return the loops by the code of the wrappers that Beam makes of users' functions."""

    def code(transform: beam.ParDo) -> CodeType:
        wrapper_code: CodeType = transform.fn.process.__code__
        return wrapper_code

    # Beam has two kinds of wrapper, of which one is for functions that may take side inputs.
    return {
        code(beam.Map(lambda value: value)): Mapped,
        code(beam.Map(lambda *values: values)): Mapped,
        code(beam.MapTuple(lambda value: value)): MappedTuples,
        code(beam.MapTuple(lambda *values: values)): MappedTuples,
        code(beam.Filter(lambda value: value)): Filtering,
        code(beam.Filter(lambda *values: values)): Filtering,
    }
