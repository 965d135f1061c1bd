"""What Beam asks again and again while it builds a pipeline is answered once for each process.

Beam makes a parser of arguments for each look at a pipeline's options, several of them for each
transform, and inspects all methods of a ``DoFn`` for each of its questions. In process, where
Spark takes no time, that is most of what a test of a small pipeline takes. The answers are those
that Beam gives: ``tests/test_beam_once.py``.
"""

import copy
import os
import shutil
import types
import weakref
from collections.abc import Callable
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core, userstate

_Arguments = tuple[list[str], list[Any]]
_Specs = tuple[set[Any], set[Any]]


def remember() -> None:
    """From now on, ask Beam once. May be called again."""
    shutil.get_terminal_size = _size_of_terminal
    PipelineOptions.view_as = _view_as
    core.get_function_args_defaults = _arguments_of
    userstate.get_dofn_specs = _specs_of


_subclasses = PipelineOptions.__subclasses__
_SIZE = shutil.get_terminal_size()
_made_view = PipelineOptions.view_as
_asked_arguments: Callable[[Any], _Arguments] = core.get_function_args_defaults
_asked_specs: Callable[[Any], _Specs] = userstate.get_dofn_specs

# By classes and functions that may be of one test only.
_views: weakref.WeakKeyDictionary[type, dict[tuple[str, ...], Any]] = weakref.WeakKeyDictionary()
_arguments: weakref.WeakKeyDictionary[Any, dict[bool, tuple[Any, _Arguments]]] = (
    weakref.WeakKeyDictionary()
)
_specs: weakref.WeakKeyDictionary[type, _Specs] = weakref.WeakKeyDictionary()


def _size_of_terminal(fallback: tuple[int, int] = (80, 24)) -> os.terminal_size:
    """Return what it was: argparse asks at each argument that is declared."""
    return _SIZE


def _view_as(self: Any, cls: Any) -> Any:
    """Do what ``PipelineOptions.view_as`` does, with what was parsed for equal flags."""
    if self._flags is None or cls.__init__ is not PipelineOptions.__init__:
        return _made_view(self, cls)
    parsed = _views.setdefault(cls, {})
    # This package leaves out the options that a program declares itself.
    declared = (
        f"{each.__module__}.{each.__qualname__}" for each in PipelineOptions.__subclasses__()
    )
    flags = (*self._flags, "among", *declared)
    if flags not in parsed:
        parsed[flags] = cls([*self._flags])._visible_options
    visible = parsed[flags]
    for name, value in vars(visible).items():
        if name not in self._all_options:
            # Options that may be given several times are lists, to which users append.
            self._all_options[name] = copy.copy(value)
    view = cls.__new__(cls)
    vars(view).update(_flags=self._flags, _visible_options=visible, _all_options=self._all_options)
    return view


def _arguments_of(f: Any) -> _Arguments:
    """Do what ``get_function_args_defaults`` does, once for each function of Python's."""
    function = getattr(f, "__func__", f)
    if not isinstance(function, types.FunctionType) or vars(function):
        return _asked_arguments(f)
    is_bound = function is not f  # then Beam leaves out the first argument
    known = _arguments.setdefault(function, {})
    asked, answer = known.get(is_bound, (None, None))
    if answer is None or asked is not function.__defaults__:
        answer = _asked_arguments(f)
        known[is_bound] = function.__defaults__, answer
    names, defaults = answer
    return [*names], [*defaults]


def _specs_of(dofn: Any) -> _Specs:
    """Do what ``get_dofn_specs`` does, once for each class whose objects have no more methods."""
    kind = type(dofn)
    has_own = any(isinstance(each, types.MethodType) for each in vars(dofn).values())
    if has_own or (hasattr(kind, "_inspect_process") and "process" not in vars(dofn)):
        return _asked_specs(dofn)
    if kind not in _specs:
        _specs[kind] = _asked_specs(dofn)
    states, timers = _specs[kind]
    return {*states}, {*timers}
