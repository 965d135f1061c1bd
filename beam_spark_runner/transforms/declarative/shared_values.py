"""Objects that the callbacks of all records of a worker share.

Pickled by value (see ``declarative``).
"""

import inspect
from collections.abc import Callable
from typing import Any

from beam_spark_runner.transforms.declarative.named import check_takes

MADE = "_beam_spark_runner_shared"
"""The attribute of a ``KeyedProcess`` that has what was made, by the attributes' names."""


class Shared:
    """An attribute of a ``KeyedProcess`` that each worker makes once, before ``setup``.

    Callbacks read it as ``self.name``. Use it for what cannot be pickled or is large, such as a
    client, a model or a table, and is equally good in every worker: a record may continue in
    another one, so nothing that belongs to a record may be kept in it.

    Args:
        make: Makes it; takes no argument.

    Example:
        class Convert(KeyedProcess):
            rates = Shared(load_rates)

            def declare_process(self, ctx):
                emit = ctx.declare("emit", lambda code: ctx.output(self.rates[code]))
                ...
    """

    is_shared_value = True
    """Recognises such attributes also if their class was pickled by value, and so is another."""

    def __init__(self, make: Callable[[], Any]) -> None:
        check_takes(make, "what makes a Shared", 0)
        self._make = make
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, process: Any, owner: Any = None) -> Any:
        if process is None:
            return self
        made = vars(process).get(MADE, {})
        if self._name not in made:
            raise RuntimeError(
                f"{self._name!r} is used outside of a worker: a Shared is made before setup, and "
                "ends with teardown"
            )
        return made[self._name]

    def __set__(self, process: Any, value: Any) -> None:
        raise AttributeError(f"{self._name!r} is a Shared, and cannot be set")

    def _made(self) -> Any:
        return self._make()


def make_shared(process: Any) -> None:
    """Make the shared objects of a process."""
    made = vars(process)[MADE] = {}
    for name in dir(type(process)):
        attribute = inspect.getattr_static(type(process), name)
        if getattr(type(attribute), "is_shared_value", False):
            made[name] = attribute._made()


def forget_shared(process: Any) -> None:
    """Forget what ``make_shared`` has made."""
    vars(process).pop(MADE, None)
