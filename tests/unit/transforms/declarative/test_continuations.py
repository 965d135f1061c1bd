"""Trees of names: what they consist of, and when there is none."""

from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.coders import VarIntCoder

from beam_spark_runner.transforms import (
    DeclarationContext,
    DeclarationError,
    KeyedProcess,
    ValueState,
)
from beam_spark_runner.transforms.declarative.continuations import (
    Node,
    Tree,
    decoded,
    encoded,
    names_in_tree,
)
from beam_spark_runner.transforms.declarative.named import Named
from beam_spark_runner.transforms.declarative.processed import Record
from tests.unit.transforms.declarative.waiting import Waiting


class Steps(KeyedProcess):
    """Elements are functions that get the process and its callbacks."""

    state = ValueState("state", VarIntCoder())

    def declare_process(self, ctx: DeclarationContext) -> Any:
        cache: list[Any] = []

        declared = {
            "emit": ctx.declare("emit", ctx.output, was=("out", "write")),
            "add": ctx.declare("add", lambda value: value + 1),
            "is odd": ctx.declare("is odd", lambda value: value % 2 == 1),
            "read": ctx.declare("read", lambda _: self.state.read()),
            "cache": ctx.declare("cache", cache.append),
        }
        cached = declared["cache"]
        declared["to cache"] = ctx.declare(
            "to cache", lambda _: self.state.read().then_accept(cached)
        )
        return lambda pair: pair[1](self, declared)


def begun(code: Callable[..., Any]) -> Waiting:
    waiting = Waiting(Steps())
    waiting.record = Record("an element", {}, {"state": None}, {}, ())
    waiting.machine.run(waiting.record, waiting.declared.inputs[0], ("key", code))
    return waiting


def _node(kind: str, *names: str | None, times: int = 1, following: int = 0) -> Node:
    return Node(kind, names, times, following)


@pytest.mark.parametrize(
    ("code", "tree"),
    [
        pytest.param(lambda s, c: s.state.read(), (), id="nothing waits"),
        pytest.param(
            lambda s, c: s.state.read().then_apply(c["add"]).then_accept(c["emit"]),
            (_node("apply", "add", following=1), _node("accept", "emit")),
            id="a chain",
        ),
        pytest.param(
            lambda s, c: (
                (read := s.state.read()).then_accept(c["emit"]),
                read.then_apply(c["add"]).then_accept(c["emit"]),
                read.then_compose(c["read"]),
            )[-1],
            (
                _node("accept", "emit"),
                _node("apply", "add", following=1),
                _node("accept", "emit"),
                _node("compose", "read"),
            ),
            id="several callbacks of one read",
        ),
        pytest.param(
            lambda s, c: (
                s.state.read()
                .then_conditionally_compose(c["is odd"], c["read"])
                .then_conditionally_apply(c["is odd"], c["add"], c["add"])
                .then_conditionally_accept(c["is odd"], c["emit"], None)
            ),
            (
                _node("compose if", "is odd", "read", None, following=1),
                _node("apply if", "is odd", "add", "add", following=1),
                _node("accept if", "is odd", "emit", None),
            ),
            id="conditions",
        ),
        pytest.param(
            lambda s, c: s.state.read().then_apply(lambda value: value), None, id="not declared"
        ),
        pytest.param(
            lambda s, c: s.state.read().then_apply(c["add"]).then_accept(print),
            None,
            id="one behind that is not declared",
        ),
        pytest.param(
            lambda s, c: s.state.read().then_conditionally_apply(c["is odd"], c["add"], int),
            None,
            id="a branch that is not declared",
        ),
        pytest.param(lambda s, c: s.state.read().then_accept(c["cache"]), None, id="not safe"),
        pytest.param(
            lambda s, c: s.state.read().then_accept(c["to cache"]), None, id="uses an unsafe one"
        ),
        pytest.param(
            lambda s, c: s.state.read().then_accept(Named("emit", print)),
            None,
            id="of another declaration",
        ),
    ],
)
def test_trees(code: Callable[..., Any], tree: Tree | None) -> None:
    waiting = begun(code)
    assert waiting.trees() == [tree]
    if tree is not None:
        assert decoded(encoded(tree)) == tree


def test_combined_reads_have_no_trees() -> None:
    def combines(process: Any, declared: Any) -> Any:
        one, other, third = (process.state.read() for _ in range(3))
        third.then_accept(declared["emit"])
        return one.then_apply(declared["add"]).then_combine(other, lambda a, b: None)

    assert begun(combines).trees() == [None, None, (_node("accept", "emit"),)]


def test_a_read_that_a_callback_has_returned_continues_with_what_waits_for_the_callback() -> None:
    waiting = begun(
        lambda s, c: (
            s.state.read().then_conditionally_compose(c["is odd"], c["read"]).then_accept(c["emit"])
        )
    )
    waiting.complete(0, 1)
    assert waiting.trees() == [(_node("true", following=1), _node("accept", "emit"))]
    other = Waiting(Steps())
    other.record = waiting.record
    again = other.continuations.attach

    def continue_(_: Any) -> None:
        again((_node("true", following=1), _node("accept", "emit")), other.process.state.read())

    other.machine.run(other.record, continue_, None)
    assert other.complete(0, 5) == [(True, 5)]


DEPTH = 20_000


def test_chains_may_be_very_long() -> None:
    def chain(process: Any, declared: Any) -> Any:
        future = process.state.read()
        for _ in range(DEPTH):
            future = future.then_apply(declared["add"])
        return future.then_accept(declared["emit"])

    waiting = begun(chain)
    [tree] = waiting.trees()
    assert tree is not None
    assert len(tree) == DEPTH + 1
    assert {*names_in_tree(tree)} == {"add", "emit"}
    other = Waiting(Steps())
    other.record = waiting.record

    def continue_(_: Any) -> None:
        other.continuations.attach(decoded(encoded(tree)), other.process.state.read())

    other.machine.run(other.record, continue_, None)
    assert other.complete(0, 1) == [DEPTH + 1]


def test_results_that_are_passed_on_many_times_are_one_node() -> None:
    """As of a callback that reads, and waits for itself, again and again."""

    class Loops(KeyedProcess):
        state = ValueState("state", VarIntCoder())

        def declare_process(self, ctx: DeclarationContext) -> Any:
            def step(_: Any) -> Any:
                return self.state.read().then_compose(again)

            again = ctx.declare("again", step)
            return again

    waiting = Waiting(Loops())
    waiting.begin(None)
    for _ in range(100):
        waiting.complete(0, None)
    assert waiting.trees() == [
        (_node("compose", "again", following=1), _node("forward", times=100))
    ]


def test_callbacks_may_have_new_names() -> None:
    waiting = begun(lambda s, c: None)
    tree = (_node("accept", "write"),)

    def continue_(_: Any) -> None:
        waiting.continuations.attach(tree, waiting.process.state.read())

    waiting.machine.run(waiting.record, continue_, None)
    assert waiting.trees() == [(_node("accept", "emit"),)]


@pytest.mark.parametrize(
    ("node", "error", "message"),
    [
        (_node("accept", "gone"), DeclarationError, "'gone', which the step does not declare"),
        (_node("twice", "emit"), ValueError, "unknown kind"),
    ],
)
def test_trees_of_other_pipelines(node: Node, error: Any, message: str) -> None:
    waiting = begun(lambda s, c: None)

    def continue_(_: Any) -> None:
        waiting.continuations.attach((node,), waiting.process.state.read())

    with pytest.raises(error, match=message):
        waiting.machine.run(waiting.record, continue_, None)


def test_one_warning_names_step_callback_and_capture(caplog: pytest.LogCaptureFixture) -> None:
    waiting = begun(lambda s, c: s.state.read().then_accept(c["to cache"]))
    assert [waiting.trees() for _ in range(3)] == [[None]] * 3
    [record] = caplog.records
    assert record.getMessage() == (
        "the step: reads that the callback 'cache' waits for, or one that uses it, are finished "
        "before each commit, and not stored, since it uses list.append: a value of the type list "
        "may be changed"
    )


def test_what_elements_change_is_found_at_each_snapshot() -> None:
    class Changes(KeyedProcess):
        state = ValueState("state", VarIntCoder())

        def declare_process(self, ctx: DeclarationContext) -> Any:
            last = None
            emit = ctx.declare("emit", lambda _: ctx.output(last))

            def element(pair: Any) -> Any:
                nonlocal last
                last = pair[1]
                return self.state.read().then_accept(emit)

            return element

    waiting = Waiting(Changes())
    waiting.record = Record("an element", {}, {"state": None}, {}, ())
    waiting.machine.run(waiting.record, waiting.declared.inputs[0], ("key", None))
    assert waiting.trees() == [(_node("accept", "emit"),)]
    waiting.machine.run(waiting.record, waiting.declared.inputs[0], ("key", "x"))
    assert waiting.trees() == [None, None]
