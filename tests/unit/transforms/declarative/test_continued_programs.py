"""Programs of futures continue in other processes, and do there what they would have done here.

A program has callbacks whose code is drawn: each makes futures of reads and of other futures, adds
callbacks to them, and returns one. It runs twice, in step: in one process, and in two others, where
the reads that wait are taken from one to the other by their trees.
"""

import functools
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from apache_beam.coders import VarIntCoder
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_spark_runner.transforms import (
    DeclarationContext,
    KeyedProcess,
    ValueState,
)
from tests.examples import examples
from tests.unit.transforms.declarative.waiting import Waiting

CALLBACKS = 6
KINDS = ("condition", "accept", "apply", "compose")


class Read(NamedTuple):
    """A new future of a read."""


class Completed(NamedTuple):
    """A new future that is complete."""

    value: int


class Follow(NamedTuple):
    """Adds callbacks to one of the futures so far."""

    future: int
    method: str
    callbacks: tuple[int | None, ...]
    is_anonymous: bool


class Combine(NamedTuple):
    """Combines two of the futures so far."""

    futures: tuple[int, int]
    is_all: bool


class Body(NamedTuple):
    """The code of a callback: what it does, and the future that it returns."""

    statements: tuple[Read | Completed | Follow | Combine, ...]
    returned: int


def bodies(draw: random.Random, *, may_depend: bool) -> tuple[Body, ...]:
    """Draw the code of all callbacks; that of each uses later ones only."""
    return tuple(_body(draw, number, may_depend) for number in range(CALLBACKS))


def _body(draw: random.Random, number: int, may_depend: bool) -> Body:
    statements: list[Any] = [Read() if draw.random() < 0.8 else Completed(draw.randrange(3))]
    for _ in range(draw.choice((0, 1, 2, 3))):
        drawn = draw.random()
        if drawn < 0.2:
            statements.append(Read())
        elif may_depend and drawn < 0.35:
            pair = draw.randrange(len(statements)), draw.randrange(len(statements))
            statements.append(Combine(pair, draw.random() < 0.5))
        elif number + 1 < CALLBACKS:
            is_anonymous = may_depend and draw.random() < 0.1
            later = [draw.randrange(number + 1, CALLBACKS) for _ in range(3)]
            method = f"then_{draw.choice(KINDS[1:])}"
            callbacks: tuple[int | None, ...] = (later[0],)
            if draw.random() < 0.4:
                method = f"then_conditionally_{draw.choice(KINDS[1:])}"
                callbacks = (*later[:2], later[2] if draw.random() < 0.6 else None)
            place = draw.choice((-1, draw.randrange(len(statements))))
            statements.append(Follow(place, method, callbacks, is_anonymous))
    return Body(tuple(statements), draw.choice((-1, draw.randrange(len(statements)))))


class Bodies(KeyedProcess):
    """Elements are programs: the code of all callbacks."""

    state = ValueState("state", VarIntCoder())

    def declare_process(self, ctx: DeclarationContext) -> Any:
        total = ctx.declare_variable(VarIntCoder(), "total", lambda: 0)

        def run(number: int, kind: str, value: Any) -> Any:
            total.set(total.get() + 1)
            ctx.output((number, kind, value, total.get()))
            if kind == "condition":
                return value not in (None, False, 0) and number % 3 != 0
            body = ctx.value[number]
            futures: list[Any] = []
            for statement in body.statements:
                futures.append(future_of(statement, futures))
            if kind == "compose":
                return futures[body.returned]
            return number * 10 if value is None else (number, value)

        def future_of(statement: Any, futures: list[Any]) -> Any:
            if isinstance(statement, Read):
                return self.state.read()
            if isinstance(statement, Completed):
                return ctx.completed(statement.value)
            if isinstance(statement, Combine):
                one, other = (futures[place] for place in statement.futures)
                if statement.is_all:
                    return ctx.combine_all([one, other]).then_apply(tuple)
                return one.then_combine(other, lambda a, b: (a, b))
            kind = statement.method.rpartition("_")[2]
            kinds = (kind,) if len(statement.callbacks) == 1 else ("condition", kind, kind)
            first, *others = (
                None if number is None else callbacks[number][KINDS.index(each)]
                for number, each in zip(statement.callbacks, kinds, strict=True)
            )
            add = getattr(futures[statement.future], statement.method)
            return add(_again(first) if statement.is_anonymous else first, *others)

        callbacks = tuple(
            tuple(ctx.declare(f"{number} {kind}", _with(run, number, kind)) for kind in KINDS)
            for number in range(CALLBACKS)
        )
        return lambda _: callbacks[0][-1](None)


def _with(run: Any, number: int, kind: str) -> Callable[[Any], Any]:
    return lambda value: run(number, kind, value)


def _again(fn: Any) -> Callable[[Any], Any]:
    return lambda value: fn(value)


@functools.cache
def processes() -> list[Waiting]:
    return [Waiting(Bodies()) for _ in range(3)]


def run_both(draw: random.Random, *, may_depend: bool) -> int:
    """Run a program in one process and in several ones; return the number of snapshots."""
    program = bodies(draw, may_depend=may_depend)
    one, other, idle = processes()
    one.begin(program)
    other.begin(program)
    snapshots = 0
    assert one.record.taken() == other.record.taken()
    while one.reads:
        place = draw.randrange(len(one.reads))
        if draw.random() < 0.6:
            trees = other.trees()
            found = [tree for tree in trees if tree is not None]
            if len(found) == len(trees):
                idle.continue_from(other, found)
                other, idle = idle, other
                snapshots += 1
            else:
                place = trees.index(None)
        result = draw.choice((None, 0, 1, True, "x"))
        assert one.complete(place, result) == other.complete(place, result)
        assert len(one.reads) == len(other.reads)
    assert not other.reads
    assert one.record.incomplete == other.record.incomplete == 0
    return snapshots


@pytest.mark.parametrize("may_depend", [False, True], ids=["declared", "also anonymous"])
@settings(max_examples=examples(4_000), deadline=None)
@given(draw=st.randoms(use_true_random=True))
def test_programs_continue_in_other_processes(may_depend: bool, draw: random.Random) -> None:
    run_both(draw, may_depend=may_depend)
