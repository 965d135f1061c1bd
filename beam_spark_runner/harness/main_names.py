"""Pickles what user code finds by name in the program's main module, if dill has pickled the code.

dill sends a function of ``__main__`` without the variables that it uses, for which it expects the
same ``__main__`` where it unpickles the function. So they are sent in addition to it: all
classes, and what pickled code uses by name, directly or through other functions. They are pickled
at once: what is one object in the program is one in a worker. cloudpickle writes them, because dill
cannot pickle an ``Enum``, and copies dataclasses so that ``dataclasses.fields`` finds nothing.
See also ``beam.dill_main``.
"""

import base64
import bz2
import io
import sys
from collections.abc import Iterator, Mapping, Set
from types import FunctionType, ModuleType
from typing import Any

from apache_beam.internal import cloudpickle_pickler
from apache_beam.internal.cloudpickle import cloudpickle
from typing_extensions import override

from beam_spark_runner.core.rendering import text_of
from beam_spark_runner.harness.main_classes import (
    ALL,
    MAIN,
    MAX_BYTES,
    CodedClasses,
    inner_classes,
    is_class_of_main,
)

_DEFINED = (ModuleType, FunctionType, type)


def coded_main_names(words: Set[str]) -> CodedClasses:
    """Pickle classes of this program's main module, and what a pipeline's code uses of it.

    Args:
        words: All names in the pickled code of the pipeline, and maybe more.
    """
    main = vars(sys.modules[MAIN])
    values = dict(main)  # other threads may add to it
    members: dict[str, Any] = {}
    others: dict[str, bytes | str] = {}  # of inner classes, and of what is missing
    queue = [
        name for name, value in values.items() if name in words or is_class_of_main(value, name)
    ]
    while queue:
        name = queue.pop()
        if name in members or name in others:
            continue
        file = _LimitedFile()
        pickler = _Pickler(file, main)
        try:
            pickler.dump(values[name])
        except Exception as error:  # steps that use it will fail, and others need not
            others[name] = file.complaint or f"it cannot be pickled: {text_of(error)}"
        else:
            members[name] = values[name]
            queue += pickler.used_names
            if is_class_of_main(values[name], name):
                others |= {inner.__qualname__: b"" for inner in inner_classes(values[name])}
    # Definitions first: what is unpickled next may call them.
    in_order = sorted(
        filter(members.__contains__, values),
        key=lambda name: not isinstance(members[name], _DEFINED),
    )
    items = [_Named(name, members[name]) for name in in_order]
    whole = io.BytesIO()
    _Pickler(whole, main).dump((list(_submodules(members, words)), items))
    return {ALL: base64.b64encode(bz2.compress(whole.getvalue())), **others}


def _submodules(members: Mapping[str, Any], words: Set[str]) -> Iterator[ModuleType]:
    """Yield modules that code may reach through a package that it names, as cloudpickle does."""
    for package in members.values():
        if isinstance(package, ModuleType):
            prefix = f"{package.__name__}."
            for name, module in list(sys.modules.items()):
                if name.startswith(prefix) and words >= {*name[len(prefix) :].split(".")}:
                    yield module


class _LimitedFile(io.RawIOBase):
    """Counts bytes, and ends the pickling of a value that has too many of them."""

    def __init__(self) -> None:
        self._size = 0
        self.complaint: str | None = None

    @override
    def write(self, data: Any) -> int:
        self._size += len(data)
        if self._size > MAX_BYTES:
            self.complaint = f"it has more than {MAX_BYTES:,} bytes"
            raise ValueError(self.complaint)
        return len(data)


class _Pickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # Beam has no types
    """Pickles functions of the main module without the variables that they use.

    Args:
        file: Takes the bytes.
        main: The variables of the main module.
    """

    def __init__(self, file: io.RawIOBase | io.BytesIO, main: dict[str, Any]) -> None:
        cloudpickle_pickler.dumps(None)  # registers Beam's own reducers with the class
        super().__init__(file, config=cloudpickle_pickler.DEFAULT_CONFIG)
        self.used_names: set[str] = set()
        self._main = main
        self.globals_ref[id(main)] = _Variables()

    @override
    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        if reduced is NotImplemented or not isinstance(obj, FunctionType):
            return reduced
        if obj.__globals__ is self._main:
            variables = reduced[2][1]["__globals__"]  # the variables, in the function's state
            self.used_names.update(variables)
            variables.clear()
        return reduced


class _Variables:
    """The variables of the main module, whichever that is where this is unpickled."""

    @override
    def __reduce__(self) -> Any:
        return variables_of_main, ()


class _Named:
    """A value that is in the main module as soon as it is unpickled."""

    def __init__(self, *name_and_value: Any) -> None:
        self._name_and_value = name_and_value

    @override
    def __reduce__(self) -> Any:
        return name_in_main, self._name_and_value


def variables_of_main() -> dict[str, Any]:
    """Return the variables of the main module."""
    return vars(sys.modules[MAIN])


def name_in_main(name: str, value: object) -> None:
    """Give a value a name in the main module."""
    variables_of_main()[name] = value
