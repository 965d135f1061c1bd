"""Classes of the program's main module, which other processes find under their names.

cloudpickle sends a class of ``__main__`` by value with the DoFns that use it. Instances of it that
are elements are pickled by reference, to ``__main__``, which in a Python worker is a module of
PySpark, and in an SDK harness one of Beam. There, a module in its place has the classes of the job
whose task runs. cloudpickle makes one class of all copies that one program has pickled, so that an
instance has the same class however it arrived. For dill, see ``main_names``.
"""

import base64
import contextlib
import functools
import json
import pickle
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, TypeAlias, TypeGuard

from apache_beam.internal import cloudpickle_pickler
from typing_extensions import override

from beam_spark_runner.core.rendering import text_of

CodedClasses: TypeAlias = Mapping[str, bytes | str]
"""By name: a pickled class, or why there is none. ``ALL``: of ``main_names``, all in one.

A name with dots is that of a class in another one, and its value is empty.
"""

MAIN = "__main__"
ALL = "*"
MAX_BYTES = 1 << 20
"""Methods refer to variables of the module, which are pickled with the class."""
_OF_PROCESS = sys.modules[MAIN]


def coded_main_classes() -> CodedClasses:
    """Pickle the classes of this program's main module, for its Python workers."""
    classes: dict[str, bytes | str] = {}
    for name, value in list(vars(sys.modules[MAIN]).items()):
        if is_class_of_main(value, name):
            classes[name] = _coded(value)
            classes |= {inner.__qualname__: b"" for inner in inner_classes(value)}
    return classes


def inner_classes(outer: type) -> Iterator[type]:
    """Yield the classes that the statement of a class contains, at any depth."""
    for name, value in list(vars(outer).items()):
        if is_class_of_main(value, f"{outer.__qualname__}.{name}"):
            yield value
            yield from inner_classes(value)


def is_class_of_main(value: object, name: str) -> TypeGuard[type]:
    """Tell whether pickle finds a value by its name in the main module, and it is a class."""
    return isinstance(value, type) and (value.__module__, value.__qualname__) == (MAIN, name)


def _coded(class_: type) -> bytes | str:
    try:
        coded: bytes = cloudpickle_pickler.dumps(class_)
    except Exception as error:  # steps that use the class will fail, and others need not
        return f"it cannot be pickled: {text_of(error)}"
    if len(coded) > MAX_BYTES:
        return f"it has {len(coded):,} bytes, pickled with the variables that its methods use"
    return coded


def to_json(classes: CodedClasses) -> str:
    """Return classes as text, for another process."""
    return json.dumps(
        {
            name: coded if isinstance(coded, str) else [base64.b64encode(coded).decode()]
            for name, coded in classes.items()
        }
    )


def from_json(text: str) -> CodedClasses:
    """Return what ``to_json`` has made a text of."""
    return {
        name: coded if isinstance(coded, str) else base64.b64decode(coded[0])
        for name, coded in json.loads(text).items()
    }


class MainModule(ModuleType):
    """Stands for the main module of the program in another process.

    Args:
        coded: What ``coded_main_classes`` has returned in the program.
    """

    __slots__ = ("__coded",)  # its other attributes are the program's

    def __init__(self, coded: CodedClasses) -> None:
        super().__init__(MAIN, sys.modules[__name__].__doc__)
        self.__coded = dict(coded)

    @override
    def __getattr__(self, name: str) -> Any:
        coded = self.__coded.get(name)
        if coded is None:
            return getattr(_OF_PROCESS, name)
        if isinstance(coded, str):
            raise AttributeError(self.complaint_about(name))
        class_ = cloudpickle_pickler.loads(coded)
        setattr(self, name, class_)
        return class_

    def serve(self) -> None:
        """Take the place of ``__main__`` in this process."""
        sys.modules[MAIN] = self if self.__coded else _OF_PROCESS
        if coded := self.__coded.get(ALL):
            try:
                cloudpickle_pickler.loads(coded)  # which gives them their names
            except Exception as error:
                raise pickle.UnpicklingError(
                    "what steps use of the main module cannot be unpickled where they run: "
                    f"{text_of(error)}. Put it into a separate module"
                ) from error
            self.__coded[ALL] = b""
        self._name_inner_classes()

    def _name_inner_classes(self) -> None:
        """Let pickle find classes in classes, of whose names cloudpickle sends the last part."""
        for qualified in [name for name in self.__coded if "." in name]:
            with contextlib.suppress(Exception):  # code that uses the class will tell
                outer, *names = qualified.split(".")
                functools.reduce(getattr, names, getattr(self, outer)).__qualname__ = qualified
                del self.__coded[qualified]

    def complaint_about(self, name: str | None) -> str:
        """Say why a name of the program is missing; empty: it is not."""
        coded = self.__coded.get(name or "")
        if not isinstance(coded, str):
            return ""
        return (
            f"{name} of the main module is not known where its steps run: {coded}. "
            "Put it into a separate module"
        )
