"""Futures of state accesses, and the order in which callbacks run."""

from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.coders import StrUtf8Coder, VarIntCoder

from beam_spark_runner.transforms import (
    DeclarationContext,
    EventTimer,
    KeyedProcess,
    MapState,
    StateFuture,
    ValueState,
)
from tests.unit.transforms.declarative.running import Run, of_code

INT = VarIntCoder()


def outputs(code: Callable[[DeclarationContext], Any], **more: Any) -> Any:
    """Process one element with undeclared callbacks."""

    def process(_: KeyedProcess, ctx: DeclarationContext, __: Any) -> Any:
        return code(ctx)

    return Run(type("Process", (KeyedProcess,), {"process": process, **more})()).element(1)


def double(value: int) -> int:
    return 2 * value


def yields(value: Any) -> Any:
    yield value


CASES: dict[str, tuple[Callable[[StateFuture, DeclarationContext], Any], Any]] = {
    "apply": (lambda five, _: five.then_apply(double), 10),
    "accept": (lambda five, _: five.then_accept(double), None),
    "compose": (lambda five, ctx: five.then_compose(lambda n: ctx.completed(n + 1)), 6),
    "compose a chain": (
        lambda five, ctx: five.then_compose(
            lambda n: ctx.completed(n).then_apply(double).then_apply(double)
        ),
        20,
    ),
    "combine": (
        lambda five, ctx: five.then_combine(
            ctx.completed(1).then_apply(double), lambda a, b: (a, b)
        ),
        (5, 2),
    ),
    "combine all": (
        lambda five, ctx: ctx.combine_all([five.then_apply(double), ctx.completed(1), five]),
        [10, 1, 5],
    ),
    "combine nothing": (lambda _, ctx: ctx.combine_all([]), []),
    "condition, true": (
        lambda five, _: five.then_conditionally_apply(bool, double, str),
        (True, 10),
    ),
    "condition, false": (
        lambda five, _: five.then_conditionally_apply(lambda n: n > 5, double, str),
        (False, "5"),
    ),
    "condition, no branch": (
        lambda five, _: five.then_conditionally_apply(lambda n: n > 5, double),
        (False, None),
    ),
    "condition with a value": (
        lambda five, _: five.then_conditionally_apply(lambda _: [], double),
        (False, None),
    ),
    "accept, true": (
        lambda five, _: five.then_conditionally_accept(bool, double),
        (True, None),
    ),
    "accept, false": (
        lambda five, _: five.then_conditionally_accept(lambda n: n > 5, double, double),
        (False, None),
    ),
    "compose, true": (
        lambda five, ctx: five.then_conditionally_compose(
            bool, lambda n: ctx.completed(n).then_apply(double), ctx.completed
        ),
        (True, 10),
    ),
    "compose, false": (
        lambda five, ctx: five.then_conditionally_compose(
            lambda n: n > 5, ctx.completed, lambda n: ctx.completed(n).then_apply(str)
        ),
        (False, "5"),
    ),
    "compose, no branch": (
        lambda five, ctx: five.then_conditionally_compose(lambda n: n > 5, ctx.completed),
        (False, None),
    ),
}


@pytest.mark.parametrize("is_complete", [True, False])
@pytest.mark.parametrize(("code", "result"), CASES.values(), ids=CASES)
def test_results(code: Callable[..., Any], result: Any, is_complete: bool) -> None:
    def process(ctx: DeclarationContext) -> None:
        five = ctx.completed(5)
        if not is_complete:
            five = five.then_apply(lambda n: n)
        code(five, ctx).then_accept(ctx.output)

    assert outputs(process) == [result]


def test_callbacks_run_after_the_code_that_adds_them_in_order() -> None:
    def process(ctx: DeclarationContext) -> None:
        done = ctx.completed(1)

        def first(_: int) -> None:
            ctx.output("a")
            done.then_accept(lambda _: ctx.output("d"))

        done.then_accept(first)
        done.then_accept(lambda _: ctx.output("b"))
        done.then_apply(double).then_accept(lambda _: ctx.output("e"))
        done.then_accept(lambda _: ctx.output("c"))
        ctx.output("first")

    assert outputs(process) == ["first", "a", "b", "c", "d", "e"]


def test_long_chains_need_no_stack() -> None:
    def process(ctx: DeclarationContext) -> None:
        future = ctx.completed(0)
        for _ in range(10_000):
            future = future.then_compose(lambda n: ctx.completed(n + 1))
        future.then_accept(ctx.output)

        def count(n: int) -> StateFuture:
            return ctx.completed(n) if n == 0 else ctx.completed(n - 1).then_compose(count)

        ctx.completed(10_000).then_compose(count).then_accept(ctx.output)

    assert sorted(outputs(process)) == [0, 10_000]


def test_a_future_of_an_earlier_record_has_its_result() -> None:
    kept = []

    def declare(_: KeyedProcess, ctx: DeclarationContext) -> Any:
        def element(pair: Any) -> None:
            kept.append(ctx.completed(pair[1]).then_apply(double))
            kept[0].then_accept(ctx.output)

        return element

    run = of_code(declare)
    assert [run.element(1), run.element(2), run.element(3)] == [[2], [2], [2]]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        (lambda five, _: five.then_compose(double), "then_compose.*needs a StateFuture, not 10"),
        (
            lambda five, _: five.then_conditionally_compose(bool, double),
            "then_conditionally_compose.*needs a StateFuture, not 10",
        ),
        (lambda _, ctx: ctx.combine_all([1]), "combine_all needs a StateFuture, not 1"),
        (lambda five, ctx: ctx.combine_all(five), "combine_all needs futures, not <.*StateFuture"),
        (lambda five, _: five.then_combine(1, max), "then_combine needs a StateFuture, not 1"),
        (lambda five, _: five.then_apply(1), "a callback must be a function, not 1"),
        (lambda five, _: five.then_combine(five, 1), "a callback must be a function, not 1"),
        (lambda five, _: five.then_conditionally_apply(bool, None), "must be a function, not None"),
        (lambda five, _: five.then_conditionally_apply(lambda _: five, double), "neither true nor"),
        (lambda five, _: five.then_apply(lambda _: five), "is a StateFuture: use then_compose"),
        (
            lambda five, _: five.then_conditionally_apply(bool, lambda _: five),
            "is a StateFuture: use then_compose",
        ),
        (lambda five, ctx: ctx.output(five), "an output is a StateFuture: use then_compose"),
        (
            lambda five, _: five.then_accept(yields),
            "is a generator or coroutine, which nobody runs",
        ),
        (lambda five, _: yields(five), "is a generator or coroutine, which nobody runs"),
        (lambda five, _: 5, "the code of a record returns nothing, or .*a StateFuture, not 5"),
    ],
)
def test_wrong_callbacks(code: Callable[..., Any], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        outputs(lambda ctx: code(ctx.completed(5), ctx))


@pytest.mark.parametrize(
    ("tags", "known"), [((), "no tags"), (("late", "where"), "'late', 'where'")]
)
@pytest.mark.parametrize("tag", ["lat", "", 1])
def test_outputs_with_unknown_tags_are_refused(tag: Any, tags: tuple[str, ...], known: str) -> None:
    def declare(_: KeyedProcess, ctx: DeclarationContext) -> Any:
        return lambda _: ctx.output(1, tag)

    problem = rf"no output with the tag {tag!r}: with_outputs\(…\) of .* names {known}; "
    with pytest.raises(ValueError, match=problem):
        of_code(declare, tags=tags).element(1)


def test_no_future_stays_incomplete() -> None:
    def process(ctx: DeclarationContext) -> None:
        futures: list[StateFuture] = []
        futures.append(ctx.completed(1).then_compose(lambda _: futures[1]))
        futures.append(ctx.completed(1).then_compose(lambda _: futures[0]))

    with pytest.raises(RuntimeError, match="futures of a record wait for each other"):
        outputs(process)


def test_exceptions_name_the_callback() -> None:
    def declare(_: KeyedProcess, ctx: DeclarationContext) -> Any:
        fails = ctx.declare("divides", lambda n: 1 // n)
        return (
            ctx.declare_chain(lambda pair: ctx.completed(pair[1]))
            .then_conditionally_compose(bool, lambda _: ctx.completed(0).then_apply(fails))
            .finish()
        )

    run = of_code(declare)
    with pytest.raises(ZeroDivisionError) as raised:
        run.element(1)
    assert vars(raised.value)["__notes__"] == ["in the callback 'divides'"]
    assert run.element(0) == []  # what the failed record has left is gone


def test_exceptions_of_combined_futures_name_the_function_once() -> None:
    def divide(dividend: int, divisor: int) -> int:
        return dividend // divisor

    with pytest.raises(ZeroDivisionError) as raised:
        outputs(lambda ctx: ctx.completed(1).then_combine(ctx.completed(0), divide))
    (note,) = vars(raised.value)["__notes__"]
    assert note.endswith("divide")


def test_exceptions_without_notes_say_it_in_their_message() -> None:
    class Old(Exception):
        add_note = property()  # as on Python 3.10: there is none

    def fail(_: Any) -> None:
        raise Old("no")

    with pytest.raises(Old, match=r"no \[in the callback .*fail\]"):
        outputs(lambda ctx: ctx.completed(1).then_apply(fail))


class Outside(KeyedProcess):
    """Uses what belongs to a record."""

    count = ValueState("count", INT)
    seen = MapState("seen", StrUtf8Coder(), INT)
    end = EventTimer("end")

    def declare_process(self, ctx: DeclarationContext) -> Any:
        self.ctx, self.number = ctx, ctx.declare_variable(INT, "number", lambda: 0)
        return lambda _: self.number.set(1)

    def declare_on_event_time(self, ctx: DeclarationContext) -> Any:
        return lambda _: None


def attribute(name: str) -> Callable[[Outside], Any]:
    return lambda process: getattr(process.ctx, name)


USES: dict[str, Callable[[Outside], Any]] = {
    **{
        f"ctx.{name}": attribute(name)
        for name in ("key", "value", "window", "timestamp", "pane", "side_inputs")
    },
    "ctx.output": lambda process: process.ctx.output(1),
    "'number'": lambda process: process.number.get(),
    "'count'": lambda process: process.count.read(),
    "'seen'": lambda process: process.seen.put("a", 1),
    "'end'": lambda process: process.end.set(1),
    "a future": lambda process: process.ctx.completed(1).then_apply(double),
}


@pytest.mark.parametrize(("what", "use"), USES.items(), ids=USES)
def test_what_belongs_to_a_record_is_used_in_its_callbacks_only(
    what: str, use: Callable[[Outside], Any]
) -> None:
    process = Outside()
    run = Run(process)
    problem = "is used outside of"
    with pytest.raises(RuntimeError, match=problem) as raised:
        use(process)
    assert what in str(raised.value)
    run.element(1)
    with pytest.raises(RuntimeError, match=problem):
        use(process)


def test_each_record_has_its_own_variables() -> None:
    def declare(_: KeyedProcess, ctx: DeclarationContext) -> Any:
        seen = ctx.declare_variable(INT, "seen", list)

        def element(pair: Any) -> Any:
            seen.get().append(pair[1])
            return ctx.completed().then_accept(lambda _: ctx.output([*seen.get()]))

        return element

    run = of_code(declare)
    assert [run.element(1), run.element(2)] == [[[1]], [[2]]]


def test_nothing_is_declared_while_records_are_processed() -> None:
    run = of_code(lambda _, ctx: lambda _: ctx.declare("late", double))
    with pytest.raises(ValueError, match="'late' is declared while records are processed"):
        run.element(1)


def test_variables_have_no_futures() -> None:
    def declare(self: Any, ctx: DeclarationContext) -> Any:
        variable = ctx.declare_variable(VarIntCoder(), "later", int)
        return lambda _: variable.set(ctx.completed(1))

    with pytest.raises(TypeError, match="'later' is a StateFuture: use then_compose"):
        of_code(declare).element("x")
