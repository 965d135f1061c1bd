"""Classes of the program's main module, which other processes find under their names.

cloudpickle sends a class of ``__main__`` by value with the DoFns that use it. Instances of it that
are elements are pickled by reference, to ``__main__``, which in a Python worker is a module of
PySpark, and in an SDK harness one of Beam. There, a module in its place has the classes of the job
whose task runs. cloudpickle makes one class of all copies that one program has pickled, so that an
instance has the same class however it arrived.
"""

import base64
import json
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any, TypeAlias

from apache_beam.internal import cloudpickle_pickler

from beam_spark_runner.core.rendering import text_of

CodedClasses: TypeAlias = Mapping[str, bytes | str]
"""By name: a pickled class, or why there is none."""

_MAIN = "__main__"
_MOST_BYTES = 1 << 20
"""Methods refer to variables of the module, which are pickled with the class."""
_OF_PROCESS = sys.modules[_MAIN]


def coded_main_classes() -> CodedClasses:
    """Pickle the classes of this program's main module, for its Python workers."""
    found: dict[str, bytes | str] = {}
    for name, value in list(vars(sys.modules[_MAIN]).items()):
        if isinstance(value, type) and (value.__module__, value.__qualname__) == (_MAIN, name):
            found[name] = _coded(value)
    return found


def _coded(class_: type) -> bytes | str:
    try:
        coded: bytes = cloudpickle_pickler.dumps(class_)
    except Exception as error:  # steps that use the class will fail, and others need not
        return f"it cannot be pickled: {text_of(error)}"
    if len(coded) > _MOST_BYTES:
        return f"it has {len(coded):,} bytes, pickled with the variables that its methods use"
    return coded


def to_json(classes: CodedClasses) -> str:
    """Return classes as text, for another process."""
    return json.dumps(
        {
            name: each if isinstance(each, str) else [base64.b64encode(each).decode()]
            for name, each in classes.items()
        }
    )


def from_json(text: str) -> CodedClasses:
    """Return what ``to_json`` has made a text of."""
    return {
        name: each if isinstance(each, str) else base64.b64decode(each[0])
        for name, each in json.loads(text).items()
    }


class MainModule(ModuleType):
    """Stands for the main module of the program in another process.

    Args:
        coded: What ``coded_main_classes`` has returned in the program.
    """

    def __init__(self, coded: CodedClasses) -> None:
        super().__init__(_MAIN, sys.modules[__name__].__doc__)
        self._coded = coded

    def __getattr__(self, name: str) -> Any:
        coded = vars(self)["_coded"].get(name)
        if coded is None:
            return getattr(_OF_PROCESS, name)
        if isinstance(coded, str):
            raise AttributeError(
                f"the class {name} of the main module is not known where its steps run: {coded}. "
                "Put it into a module of its own"
            )
        class_ = cloudpickle_pickler.loads(coded)
        setattr(self, name, class_)
        return class_

    def serve(self) -> None:
        """Take the place of ``__main__`` in this process."""
        sys.modules[_MAIN] = self if self._coded else _OF_PROCESS
