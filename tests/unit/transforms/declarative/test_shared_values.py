"""Objects that workers make once, for the callbacks of all records."""

import pickle
from typing import Any

import pytest
from apache_beam.coders import VarIntCoder

from beam_spark_runner.transforms import (
    DeclarationContext,
    DeclarationError,
    KeyedProcess,
    Shared,
    ValueState,
)
from beam_spark_runner.transforms.declarative.keyed_do_fn import KeyedProcessDoFn
from tests.unit.transforms.declarative.running import nothing

MADE: list[str] = []


def make() -> dict[str, int]:
    MADE.append("table")
    return {"x": 1}


class Looks(KeyedProcess):
    state = ValueState("state", VarIntCoder())
    table = Shared(make)

    def setup(self) -> None:
        self.of_setup = self.table["x"]

    def declare_process(self, ctx: DeclarationContext) -> Any:
        return lambda pair: ctx.output(self.table[pair[1]])


class Extended(Looks):
    more = Shared(lambda: "more")


def test_it_is_made_once_before_setup_and_forgotten_after_teardown() -> None:
    MADE.clear()
    process = Extended()
    fn = KeyedProcessDoFn(process)
    process.declare_all()  # as when the pipeline is built
    assert not MADE
    fn.setup()
    assert (process.of_setup, process.table, process.more) == (1, {"x": 1}, "more")
    context: dict[str, Any] = {"timestamp": None, "window": None, "pane": None, "side_inputs": {}}
    assert fn.run_element(("key", "x"), context, [None]) == [1]
    assert MADE == ["table"]
    fn.teardown()
    with pytest.raises(RuntimeError, match="'table' is used outside of a worker"):
        _ = process.table
    pickle.dumps(process)


def test_it_cannot_be_set() -> None:
    with pytest.raises(AttributeError, match="'table' is a Shared"):
        Looks().table = {}


def test_what_makes_it_takes_no_argument() -> None:
    with pytest.raises(DeclarationError, match="what makes a Shared must take no argument"):
        Shared(lambda _: nothing())  # type: ignore[misc, arg-type]


def test_the_class_has_the_declaration() -> None:
    assert isinstance(Looks.table, Shared)
