"""Classes and functions of the main module of a program, for tests that are none.

They are defined by text, as if the program had them: a Python worker that imports a module of the
tests must not get them in this way, too.
"""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

_SOURCE = """
import dataclasses

class BoxOfTests:
    def __init__(self, content):
        self.content = content

    def __eq__(self, other):
        return type(other) is BoxOfTests and self.content == other.content

    def __hash__(self):
        return hash(self.content)

class SlotsOfTests:
    __slots__ = ("content",)

    def __init__(self, content):
        self.content = content

@dataclasses.dataclass(frozen=True)
class FrozenOfTests:
    content: object

class ErrorOfTests(Exception):
    @property
    def content(self):
        return self.args[0]

CLASSES_OF_TESTS = (BoxOfTests, SlotsOfTests, FrozenOfTests, ErrorOfTests)

def boxed_of_tests(content):
    number = content if isinstance(content, int) else len(content)
    return CLASSES_OF_TESTS[number % len(CLASSES_OF_TESTS)](content)

def unboxed_of_tests(box):
    assert type(box) in CLASSES_OF_TESTS, type(box)  # the class that came with this function
    return box.content
"""


@contextlib.contextmanager
def classes_of_main() -> Iterator[None]:
    """Have the main module define classes within the context; see ``of_main``."""
    main = vars(sys.modules["__main__"])
    before = dict(main)
    exec(_SOURCE, main)
    try:
        yield
    finally:
        for name in main.keys() - before.keys():
            del main[name]
        main.update(before)


def of_main(name: str) -> Any:
    """Return what the main module defines: "boxed" or "unboxed".

    "boxed" puts a number, or something that has a length, into an instance of one of its classes;
    "unboxed" takes it out again, and fails if it is not an instance of the same class.
    """
    return getattr(sys.modules["__main__"], f"{name}_of_tests")
