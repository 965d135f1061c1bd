"""Lets dill find the main module's names, and its classes, in the module that stands for it.

dill sends a function of ``__main__`` without the variables that it uses, which are those of the
``__main__`` that dill has seen when it was imported. It sends a class by value, and makes a new one
whenever it unpickles it; here, that is the one class which the main module has under its name.
"""

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from apache_beam.internal import pickler

from beam_spark_runner.harness.main_classes import MAIN, inner_classes


def show_dill() -> None:
    """Make the present ``__main__`` that of dill, if dill is installed."""
    if pickler.dill_pickler is None:
        return
    dill = pickler.dill_pickler.dill.dill
    dill._main_module = sys.modules[MAIN]
    if not hasattr(dill._create_type, "__wrapped__"):
        dill._create_type = _finding(dill._create_type)
    # Steps that Beam pickles once more stay in this process.
    pickler.dill_pickler.settings["dill_byref"] = True


def _finding(create: Callable[..., type]) -> Callable[..., type]:
    """Return a function that creates a class, unless the main module has it.

    To dill, which pickles it by name, it has the name of dill's own.
    """

    @functools.wraps(create)
    def found_or_created(metaclass: type, *arguments: Any) -> type:
        if len(arguments) == 3:  # it may be any callable, which makes something of others
            name, bases, members = arguments
            if isinstance(members, dict) and members.get("__module__") == MAIN:
                for class_ in _classes_of_main(name):
                    if class_.__bases__ == bases and _are_same(vars(class_), members):
                        return class_
        return create(metaclass, *arguments)

    return found_or_created


def _classes_of_main(name: str) -> Iterator[type]:
    """Yield all classes of a name in the main module; dill says nothing of outer classes."""
    main = sys.modules[MAIN]
    candidate = getattr(main, name, None)
    if isinstance(candidate, type):
        yield candidate
    for class_ in list(vars(main).values()):
        if isinstance(class_, type) and class_.__module__ == MAIN:
            yield from (inner for inner in inner_classes(class_) if inner.__name__ == name)


def _are_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Tell whether two classes of one name were made by the same statement.

    A cell of a notebook may have been run again, and a function may have a class of the same name.
    Variables of classes say nothing, since a program may change them.
    """
    return one.get("__firstlineno__") == other.get("__firstlineno__") and all(
        _code(one.get(name)) == _code(other.get(name)) for name in {**one, **other}
    )


def _code(member: Any) -> CodeType | None:
    if isinstance(member, property):
        member = member.fget
    elif isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    return member.__code__ if isinstance(member, FunctionType) else None
