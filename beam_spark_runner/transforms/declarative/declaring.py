"""``DeclarationContext``: what a process declares, and what its callbacks use.

Pickled by value (see ``declarative``).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from apache_beam.coders import Coder
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.transforms.declarative.declared_chain import DeclarationStage
from beam_spark_runner.transforms.declarative.futures import ImmediateMachine, StateFuture
from beam_spark_runner.transforms.declarative.named import (
    AUTOMATIC,
    CALLBACK,
    DeclarationError,
    Named,
    check_takes,
    checked_name,
    is_automatic,
    names_in,
)
from beam_spark_runner.transforms.declarative.returned import check_result


class DeclaredVariable:
    """A variable of each record, which its callbacks share. See ``declare_variable``."""

    is_of_record = True
    """Recognises what callbacks have for each record, also if its class is another copy."""

    def __init__(
        self,
        machine: ImmediateMachine,
        coder: Coder,
        name: str,
        initial: Callable[[], Any],
    ) -> None:
        self.name = name
        self.coder = coder
        self._machine = machine
        self._initial = initial

    def get(self) -> Any:
        """Return the value that the current record has; at first, the initial one."""
        variables = self._variables()
        if self.name not in variables:
            variables[self.name] = self._initial()
        return variables[self.name]

    def set(self, value: Any) -> None:
        """Set the value of the current record."""
        check_result(value, f"the value of the variable {self.name!r}")
        self._variables()[self.name] = value

    def _variables(self) -> dict[str, Any]:
        record = self._machine.record
        if record is None:
            raise RuntimeError(
                f"the variable {self.name!r} is used outside of a record's callbacks"
            )
        variables: dict[str, Any] = record.variables
        return variables


class DeclarationContext:
    """Declares the callbacks and variables of a ``KeyedProcess``, and has the current record.

    What belongs to a record (``key`` to ``output``) can be used in its callbacks only.

    Args:
        machine: Processes the records.
    """

    is_of_record = True
    """See ``DeclaredVariable``."""

    def __init__(self, machine: ImmediateMachine) -> None:
        self._machine = machine
        self._callbacks: dict[str, Named] = {}
        self._earlier: dict[str, str] = {}  # the current name, by earlier name
        self._variables: dict[str, DeclaredVariable] = {}
        self._chains: list[DeclarationStage] = []
        self._automatic = 0
        self._is_sealed = False

    def declare(
        self,
        name: str | Callable[..., Any],
        fn: Callable[..., Any] | None = None,
        *,
        was: Sequence[str] = (),
    ) -> Named:
        """Declare a callback.

        Args:
            name: The name, unique within the process; may be left out: then it is a number, which
                depends on the order of declarations.
            fn: The function.
            was: Names that the callback had in earlier versions of the pipeline.

        Returns:
            The callback, for any ``then_…``. It can also be called.

        Raises:
            DeclarationError: The name is declared already or not allowed, the function takes
                neither one argument nor two, or records are processed.
        """
        if fn is None:
            if isinstance(name, str):
                raise DeclarationError(f"the callback {name!r} has no function")
            fn, given = name, self._automatic_name()
        else:
            given = checked_name(name, CALLBACK)
        what = f"the callback {given!r}"
        self._check_declares(what)
        if isinstance(fn, Named):
            raise DeclarationError(f"{what} is declared already, as {fn.name!r}")
        check_takes(fn, what, 1, 2)
        named = Named(given, fn, names_in(was))
        if given in named.was:
            raise DeclarationError(f"{what} has the same name as in earlier versions: {was!r}")
        for each in (given, *named.was):
            if each in self._callbacks or each in self._earlier:
                owner = self._earlier.get(each, each)
                raise DeclarationError(
                    f"{what} is declared twice"
                    if each == given == owner
                    else f"the name {each!r} belongs to the callbacks {owner!r} and {given!r}"
                )
        self._earlier.update(dict.fromkeys(named.was, given))
        self._callbacks[given] = named
        return named

    def declare_variable(
        self, coder: Coder, name: str, initial: Callable[[], Any]
    ) -> DeclaredVariable:
        """Declare a variable that each record has for itself, for values that callbacks share.

        Args:
            coder: Encodes its values.
            name: The name, unique among the variables of the process.
            initial: Makes the initial value for each record.

        Raises:
            DeclarationError: The name is declared already, an argument has a wrong type, or records
                are processed.
        """
        checked_name(name, "a variable")
        self._check_declares(f"the variable {name!r}")
        if not isinstance(coder, Coder):
            raise DeclarationError(f"the variable {name!r} needs a coder, not {coder!r}")
        check_takes(initial, f"the initial value of the variable {name!r}", 0)
        if name in self._variables:
            raise DeclarationError(f"the variable {name!r} is declared twice")
        variable = self._variables[name] = DeclaredVariable(self._machine, coder, name, initial)
        return variable

    def declare_chain(self, first: Callable[[Any], StateFuture]) -> DeclarationStage:
        """Begin a chain of callbacks, each of which gets the result of the previous one.

        Args:
            first: Gets the record, and returns a future.

        Returns:
            The first stage of the chain, which must be continued and finished.

        Raises:
            DeclarationError: Records are processed.
        """
        self._check_declares("a chain")
        check_takes(first, "the first code of a chain", 1)
        stage = DeclarationStage(self, first)
        self._chains.append(stage)
        return stage

    def with_record(self) -> DeclarationStage:
        """Begin a chain whose first callback gets the record itself."""
        return self.declare_chain(self._machine.completed)

    def completed(self, result: Any = None) -> StateFuture:
        """Return a future that is complete, with a result."""
        return self._machine.completed(result)

    def combine_all(self, futures: Iterable[StateFuture]) -> StateFuture:
        """Return a future of the list of the results of several futures."""
        return self._machine.combined(futures)

    @property
    def key(self) -> Any:
        """The key of the record."""
        return self._of_record("key")

    @property
    def value(self) -> Any:
        """The value of the element; timers and ends of windows have none."""
        return self._of_record("value")

    @property
    def window(self) -> Any:
        """The window of the record."""
        return self._of_record("window")

    @property
    def timestamp(self) -> Timestamp:
        """The timestamp of the element; of a timer, the time for which it was set."""
        timestamp: Timestamp = self._of_record("timestamp")
        return timestamp

    @property
    def pane(self) -> Any:
        """The pane of the element; timers and ends of windows have none."""
        return self._of_record("pane")

    @property
    def side_inputs(self) -> Mapping[str, Any]:
        """The side inputs of the element's window; timers and ends of windows have none."""
        views: Mapping[str, Any] = self._of_record("side_inputs")
        return views

    def output(self, value: Any, tag: str | None = None, timestamp: Any = None) -> None:
        """Emit an element in the window of the record.

        Args:
            value: The element.
            tag: The output, one of ``DeclarativeKeyedProcess.with_outputs``; None: the main output.
            timestamp: Its timestamp; None: that of the record.

        Raises:
            ValueError: There is no output with the tag.
        """
        self._record("output").emit(value, tag, timestamp)

    def _record(self, what: str) -> Any:
        record = self._machine.record
        if record is None:
            raise RuntimeError(f"ctx.{what} is used outside of the callbacks of a record")
        return record

    def _of_record(self, what: str) -> Any:
        record = self._record(what)
        if what not in record.context:
            raise RuntimeError(f"{record.kind} has no ctx.{what}")
        return record.context[what]

    def _automatic_name(self) -> str:
        self._automatic += 1
        return AUTOMATIC.format(self._automatic)

    def _check_declares(self, what: str) -> None:
        if self._is_sealed:
            raise DeclarationError(f"{what} is declared while records are processed")


def seal(context: DeclarationContext) -> None:
    """End the declarations. No method, since users see those.

    Raises:
        DeclarationError: A chain is not finished.
    """
    for stage in context._chains:
        stage.check_finished()
    context._is_sealed = True


class Descriptions(NamedTuple):
    """How the checkpoint describes what stored records continue with, by name.

    A later version of the pipeline must declare the same: see ``declared_texts``.

    Attributes:
        callbacks: Of all callbacks, also by earlier names.
        variables: Of all variables.
    """

    callbacks: Mapping[str, str]
    variables: Mapping[str, str]


def descriptions_of(context: DeclarationContext) -> Descriptions:
    """Return the descriptions of all callbacks and variables. No method, likewise."""
    count = context._automatic
    callbacks = {
        # Their numbers are their order: another number of them may mean other callbacks.
        name: f"{name} of {count} without a name"
        if is_automatic(name)
        else f"the callback {name!r}"
        for name in callbacks_of(context)
    }
    variables = {
        name: f"the variable {name!r} with the coder {variable.coder!r}"
        for name, variable in context._variables.items()
    }
    return Descriptions(callbacks, variables)


def coders_of_variables(context: DeclarationContext) -> Mapping[str, Coder]:
    """Return the coders of all variables, by name. No method, likewise."""
    return {name: variable.coder for name, variable in context._variables.items()}


def callbacks_of(context: DeclarationContext) -> Mapping[str, Named]:
    """Return all declared callbacks by name, also by those that they had in earlier versions."""
    earlier = {name: context._callbacks[current] for name, current in context._earlier.items()}
    return {**earlier, **context._callbacks}
