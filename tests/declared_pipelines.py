"""Random pipelines of declarative steps, and a model that says what each emits.

All elements arrive before the watermark passes any timer, so that batch and epochs agree.
Each chain has its own states and its own timer, since runners fire timers in different orders.
"""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.coders import FastPrimitivesCoder, TupleCoder, VarIntCoder
from apache_beam.pvalue import AsDict
from apache_beam.transforms.window import FixedWindows

from beam_spark_runner.transforms import (
    DeclarationContext,
    DeclarativeKeyedProcess,
    EventTimer,
    FiredTimer,
)
from tests.declared_programs import (
    CHAINS,
    KEYS,
    OPERATIONS,
    Access,
    Accesses,
    OnDicts,
    draw_access,
    plain,
)

STYLES = ("declared", "anonymous", "chained")
TAGS = (None, "odd", "late")
RATES = {"": 7, "a": 8}
"""A side input."""
_WINDOW_S = 100
_FIRST_TIMER_S, _LAST_TIMER_S = 20, 24  # since the begin of a window
Step = tuple[str, tuple[Access | None, ...]]
"""How accesses are combined: ``one``, ``branch`` (the second may be None), ``both``, ``all``."""
Chain = list[Step]
Output = tuple[str, Any, int | None]
"""The tag; the key, the number of the chain or "end", and its result; the timestamp, in ms."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A pipeline.

    Attributes:
        style: How its callbacks are declared.
        has_windows: Whether it has fixed windows; else there is the global one.
        elements: The key, the time in seconds and the chains of each element.
        on_timer: What each chain does when its timer fires; empty: it has none.
        ends: Whether it emits something at the end of each window.
    """

    style: str
    has_windows: bool
    elements: Sequence[tuple[str, int, list[Chain]]]
    on_timer: Sequence[Chain]
    ends: bool


def draw_pack(
    draw: random.Random, size: int, kinds: Sequence[str] = tuple(OPERATIONS)
) -> list[Recipe]:
    """Draw pipelines with some kinds of states, which run as one.

    They have windows of the same kind, since Beam's FnApiRunner 2.77 mixes timers up that have the
    same name in several steps (``FnApiRunnerExecutionContext.timer_buffers``).
    """
    has_windows = draw.random() < 0.5
    return [_recipe(draw, kinds, has_windows=has_windows) for _ in range(size)]


def _recipe(draw: random.Random, kinds: Sequence[str], *, has_windows: bool) -> Recipe:
    kinds = draw.sample(kinds, 2)  # few, so that it often accesses what it has changed
    style = draw.choice(STYLES)
    on_timer = [_chain(draw, kinds) for _ in range(CHAINS)] if draw.random() < 0.6 else []
    more = ["side", "timer"] if on_timer else ["side"]
    windows = range(2 if has_windows else 1)
    fixed = [_chain(draw, [*kinds, *more]) for _ in range(CHAINS)]
    elements = [
        (
            f"key {draw.randrange(3)}",
            draw.choice(windows) * _WINDOW_S + draw.randrange(5),
            fixed
            if style == "chained"
            else [_chain(draw, [*kinds, *more]) for _ in range(draw.randint(1, CHAINS))],
        )
        for _ in range(draw.randint(1, 12))
    ]
    return Recipe(
        style=style,
        has_windows=has_windows,
        elements=elements,
        on_timer=on_timer,
        ends=not on_timer and draw.random() < 0.5,
    )


def _chain(draw: random.Random, kinds: Sequence[str]) -> Chain:
    return [_step(draw, kinds) for _ in range(draw.randint(1, 5))]


def _step(draw: random.Random, kinds: Sequence[str]) -> Step:
    how = draw.choice(["one", "one", "one", "branch", "branch", "both", "all"])
    if how == "one":
        return how, (_access(draw, kinds),)
    if how == "branch":
        return how, (_access(draw, kinds), _access(draw, kinds) if draw.random() < 0.7 else None)
    # A bag may return what is added while it is iterated over.
    others = [kind for kind in kinds if kind != "bag"]
    count = 2 if how == "both" else draw.randrange(4)
    return how, tuple(_access(draw, others) for _ in range(count))


def _access(draw: random.Random, kinds: Sequence[str]) -> Access:
    kind = draw.choice(kinds)
    if kind == "side":
        return kind, "get", (draw.choice(KEYS),)
    if kind == "timer":
        if draw.random() < 0.3:
            return kind, "clear", ()
        return kind, "set", (draw.randrange(_FIRST_TIMER_S, _LAST_TIMER_S + 1),)
    return draw_access(draw, [kind])


def _tag(result: Any) -> str | None:
    return TAGS[len(repr(result)) % len(TAGS)]


class Runs(Accesses):
    """Runs the chains of elements and timers.

    Args:
        recipe: What it runs.
    """

    timer_0, timer_1 = EventTimer("timer 0"), EventTimer("timer 1")

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def declare_process(self, ctx: DeclarationContext) -> Any:
        chains = [self._declared(ctx, number, "element") for number in range(CHAINS)]
        if self._recipe.style == "chained":
            chains = [
                self._chained(ctx, number, chain)
                for number, chain in enumerate(self._recipe.elements[0][2])
            ]

        def element(pair: tuple[str, list[Chain]]) -> None:
            for number, chain in enumerate(pair[1]):
                if self._recipe.style == "anonymous":
                    self._anonymous(ctx, number, chain)
                else:
                    chains[number](chain)

        return element

    def declare_on_event_time(self, ctx: DeclarationContext) -> Any:
        chains = [self._declared(ctx, number, "timer") for number in range(CHAINS)]

        def fire(timer: FiredTimer) -> None:
            number = int(timer.name[-1])
            chains[number](self._recipe.on_timer[number])
            at = timer.timestamp.micros // 1_000_000
            if at % _WINDOW_S < _LAST_TIMER_S:
                (self.timer_0, self.timer_1)[number].set(at + 1)

        return fire

    def declare_on_window_expiration(self, ctx: DeclarationContext) -> Any:
        emit = ctx.declare("emit end", lambda value: ctx.output((ctx.key, "end", value), "late"))

        def end(window: Any) -> Any:
            return self.value_0.read().then_accept(emit) if self._recipe.ends else None

        return end

    def _access(self, ctx: DeclarationContext, number: int, access: Access) -> Any:
        kind, method, arguments = access
        if kind == "side":
            return ctx.completed(ctx.side_inputs["rates"].get(*arguments))
        if kind != "timer":
            return self.access(number, access)
        timer = (self.timer_0, self.timer_1)[number]
        if method == "clear":
            timer.clear()
        else:
            timer.set(ctx.timestamp.micros // 1_000_000 // _WINDOW_S * _WINDOW_S + arguments[0])
        return ctx.completed()

    def _run(self, ctx: DeclarationContext, number: int, step: Step) -> Any:
        """Run a step that is no ``branch``."""
        how, accesses = step
        futures = [self._access(ctx, number, access) for access in accesses if access]
        if how == "both":
            return futures[0].then_combine(futures[1], lambda a, b: (plain(a), plain(b)))
        if how == "all":
            return ctx.combine_all(futures).then_apply(lambda all_: tuple(map(plain, all_)))
        return futures[0]

    def _branches(self, ctx: DeclarationContext, number: int, step: Step) -> list[Any]:
        def later(access: Access) -> Any:
            return lambda _: self._access(ctx, number, access)

        return [access and later(access) for access in step[1]]

    def _declared(self, ctx: DeclarationContext, number: int, what: str) -> Any:
        """Declare callbacks that get the rest of the chain by a variable."""
        name = f"{what} {number}"
        rest = ctx.declare_variable(TupleCoder((FastPrimitivesCoder(),)), f"rest {name}", list)
        steps = ctx.declare_variable(VarIntCoder(), f"steps {name}", lambda: 0)
        done = ctx.declare_variable(VarIntCoder(), f"done {name}", lambda: 0)
        emit = ctx.declare(f"emit {name}", _emit(ctx, number))
        holds = ctx.declare(f"holds {name}", _holds)

        def next_step(result: Any) -> Any:
            if not rest.get():
                assert done.get() == steps.get(), "a variable is not that of the record"
                return ctx.completed(result)
            step, *others = rest.get()
            rest.set(others)
            done.set(done.get() + 1)
            if step[0] == "branch":
                branches = self._branches(ctx, number, step)
                future = ctx.completed(result).then_conditionally_compose(holds, *branches)
            else:
                future = self._run(ctx, number, step)
            return future.then_compose(following)

        following = ctx.declare(f"next {name}", next_step)

        def begin(chain: Chain) -> Any:
            rest.set(chain)
            steps.set(len(chain))
            return following(None).then_apply(plain).then_accept(emit)

        return begin

    def _anonymous(self, ctx: DeclarationContext, number: int, chain: Chain) -> None:
        """Add all callbacks before the first one runs."""
        future = ctx.completed()
        for step in chain:
            future = self._then(ctx, number, future, step)
        future.then_apply(plain).then_accept(_emit(ctx, number))

    def _chained(self, ctx: DeclarationContext, number: int, chain: Chain) -> Any:
        """Declare the steps as a chain."""
        future: Any = ctx.declare_chain(lambda _: ctx.completed())
        for place, step in enumerate(chain):
            future = self._then(ctx, number, future, step)
            if place % 2:
                future = future.with_name(f"step {number}, {place}")
        return future.then_apply(plain).then_accept(_emit(ctx, number)).finish()

    def _then(self, ctx: DeclarationContext, number: int, future: Any, step: Step) -> Any:
        if step[0] == "branch":
            return future.then_conditionally_compose(_holds, *self._branches(ctx, number, step))
        return future.then_compose(lambda _: self._run(ctx, number, step))


def _holds(result: Any) -> bool:
    return bool(plain(result))


def _emit(ctx: DeclarationContext, number: int) -> Any:
    return lambda result: ctx.output((ctx.key, number, result), _tag(result))


def transform(recipe: Recipe, pairs: Any, label: str) -> Any:
    """Apply the step of a recipe to pairs of key and chains; return its outputs by tag."""
    rates = pairs.pipeline | f"Rates {label}" >> beam.Create([*RATES.items()])
    if recipe.has_windows:
        pairs = pairs | f"Windows {label}" >> beam.WindowInto(FixedWindows(_WINDOW_S))
    step = DeclarativeKeyedProcess(Runs(recipe), side_inputs={"rates": AsDict(rates)})
    outputs = pairs | label >> step.with_outputs(*TAGS[1:], main="main")
    return {"main": outputs.main, "odd": outputs.odd, "late": outputs.late}


class Model:
    """Runs a recipe on plain Python values, one access after another."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._states: dict[Any, OnDicts] = defaultdict(OnDicts)
        self._timers: dict[Any, int] = {}
        self.outputs: list[Output] = []
        for key, at, chains in recipe.elements:
            for number, chain in enumerate(chains):
                self._run((key, self._window(at), number), chain, at)
        for place in [*self._timers]:
            while (time := self._timers.pop(place, None)) is not None:
                self._run(place, recipe.on_timer[place[2]], time)
                if time % _WINDOW_S < _LAST_TIMER_S:
                    self._timers[place] = time + 1
        if recipe.ends:
            for key, window in {(key, self._window(at)) for key, at, _ in recipe.elements}:
                value = self._states[key, window, 0].access("value", "read", ())
                end_ms = (window + 1) * _WINDOW_S * 1_000 - 1 if recipe.has_windows else None
                self.outputs.append(("late", (key, "end", value), end_ms))

    def _window(self, at: int) -> int:
        return at // _WINDOW_S if self._recipe.has_windows else 0

    def _run(self, place: Any, chain: Chain, at: int) -> None:
        result: Any = None
        for how, accesses in chain:
            if how == "branch":
                holds = bool(plain(result))
                access = accesses[0] if holds else accesses[1]
                result = holds, access and plain(self._access(place, access, at))
            else:
                results = [plain(self._access(place, each, at)) for each in accesses if each]
                result = results[0] if how == "one" else tuple(results)
        result = plain(result)
        self.outputs.append((_tag(result) or "main", (place[0], place[2], result), at * 1_000))

    def _access(self, place: Any, access: Access, at: int) -> Any:
        kind, method, arguments = access
        if kind == "side":
            return RATES.get(*arguments)
        if kind != "timer":
            return self._states[place].access(kind, method, arguments)
        if method == "clear":
            self._timers.pop(place, None)
        else:
            self._timers[place] = at // _WINDOW_S * _WINDOW_S + arguments[0]
        return None


def expected(recipe: Recipe) -> list[Output]:
    """Return what a recipe emits, sorted by its text."""
    return sorted(Model(recipe).outputs, key=repr)


def found_outputs(kept: Mapping[str, Sequence[Any]], recipe: Recipe) -> list[Output]:
    """Return what a runner has emitted, as ``expected`` does.

    The last timestamp of the global window is not compared: Python's SDK has it earlier.

    Args:
        kept: The outputs by tag; see ``tests.harvest.Kept``.
        recipe: The recipe.
    """
    found: list[Output] = []
    for tag, elements in kept.items():
        for each in elements:
            has_time = recipe.has_windows or each.value[1] != "end"
            at_ms = each.timestamp.micros // 1_000 if has_time else None
            found.append((tag, each.value, at_ms))
    return sorted(found, key=repr)
