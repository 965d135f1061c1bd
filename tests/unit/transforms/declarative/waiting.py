"""A declarative process whose reads wait until a test completes them."""

from collections.abc import Iterable
from typing import Any

from beam_spark_runner.transforms.declarative.continuations import (
    Continuations,
    Tree,
    decoded,
    encoded,
)
from beam_spark_runner.transforms.declarative.processed import Record


class Waiting:
    """A process with one record, whose reads wait."""

    def __init__(self, process: Any) -> None:
        self.process = process
        self.declared = process.declare_all(())
        self.machine = self.declared.machine
        self.machine.requests = self
        self.continuations = Continuations(self.declared, "the step")
        self.reads: list[Any] = []

    def use(self, program: Any) -> None:
        self.record = Record("an element", {"value": program}, {"state": None}, {}, ())
        self.reads.clear()

    def ask(self, record: Any, name: str, access: Any, future: Any, *_: Any, **__: Any) -> None:
        self.reads.append(future)

    def begin(self, program: Any) -> None:
        self.use(program)
        self.machine.run(self.record, self.declared.inputs[0], ("key", "value"))

    def complete(self, place: int, result: Any) -> list[Any]:
        self.machine.resume(self.record, self.reads.pop(place), result)
        return self.record.taken()

    def trees(self) -> list[Tree | None]:
        snapshot = self.continuations.snapshot()
        return [snapshot.tree_of(future) for future in self.reads]

    def continue_from(self, other: "Waiting", trees: Iterable[Tree]) -> None:
        """Continue with the record of another process, and its reads."""
        coded = [encoded(tree) for tree in trees]
        self.use(other.record.context["value"])
        self.record.variables.update(other.record.variables)

        def again(_: Any) -> None:
            for each in coded:
                self.continuations.attach(decoded(each), self.process.state.read())

        self.machine.run(self.record, again, None)
