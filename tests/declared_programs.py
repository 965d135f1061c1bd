"""Random programs of state accesses, as elements: run by declarative processes, and on dicts.

The program of a record has chains, which run at the same time, each on its own states. Each step of
a chain is an access, or a condition with an access in each branch; the result of the last one is
emitted. So the order in which chains take turns does not matter.
"""

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from apache_beam.coders import StrUtf8Coder, VarIntCoder
from apache_beam.coders.coders import FastPrimitivesCoder
from apache_beam.utils.timestamp import Timestamp

from beam_spark_runner.transforms import (
    BagState,
    CombiningState,
    DeclarationContext,
    KeyedProcess,
    MapState,
    OrderedListState,
    SetState,
    ValueState,
)

CHAINS = 2
KEYS = ("", "a", "long" * 100)
OPERATIONS: dict[str, list[tuple[str, str]]] = {
    "value": [("read", ""), ("write", "n"), ("clear", "")],
    "map": [
        *(("get", "k"), ("put", "kn"), ("put", "kn"), ("remove", "k"), ("contains", "k")),
        *(("items", ""), ("clear", "")),
    ],
    "set": [
        *(("add", "k"), ("add", "k"), ("remove", "k"), ("contains", "k"), ("read", "")),
        ("clear", ""),
    ],
    "bag": [("add", "n"), ("read", ""), ("clear", "")],
    "sum": [("add", "n"), ("read", ""), ("clear", "")],
    "list": [
        *(("add", "tn"), ("read", ""), ("read_range", "tt"), ("clear_range", "tt")),
        ("clear", ""),
    ],
}
Access = tuple[str, str, tuple[Any, ...]]  # kind of state, method, arguments
Step = tuple[Access | None, ...]  # one access; or those of the branches, of which one may be None
Program = list[list[Step]]


def programs(draw: random.Random, count: int) -> list[Program]:
    """Draw the programs of the records of a key: the steps of each chain.

    They use few kinds of states, so that they often access one that they have changed.
    """
    kinds = draw.sample([*OPERATIONS], 2)
    return [
        [
            [_step(draw, kinds, is_first=not place) for place in range(draw.randint(1, 5))]
            for _ in range(draw.randint(1, CHAINS))
        ]
        for _ in range(count)
    ]


def _step(draw: random.Random, kinds: list[str], *, is_first: bool) -> Step:
    if is_first or draw.random() < 0.6:
        return (draw_access(draw, kinds),)
    return (draw_access(draw, kinds), draw_access(draw, kinds) if draw.random() < 0.7 else None)


def draw_access(draw: random.Random, kinds: list[str]) -> Access:
    kind = draw.choice(kinds)
    method, arguments = draw.choice(OPERATIONS[kind])
    values = {"n": draw.randrange(3), "k": draw.choice(KEYS), "t": draw.randrange(6)}
    if arguments == "tt":
        return kind, method, (draw.randrange(6), draw.randrange(6))
    return kind, method, tuple(values[each] for each in arguments)


def plain(result: Any) -> Any:
    """Return a result as a value that can be compared."""
    if isinstance(result, tuple):
        return tuple(map(plain, result))
    if isinstance(result, Timestamp):
        return result.micros // 1_000_000
    if isinstance(result, Iterable) and not isinstance(result, str):
        return sorted(map(plain, result))
    return result


def _states(number: int) -> dict[str, Any]:
    text, int_ = StrUtf8Coder(), VarIntCoder()
    states = [
        *(ValueState(f"value {number}", int_), MapState(f"map {number}", text, int_)),
        *(SetState(f"set {number}", text), BagState(f"bag {number}", int_)),
        CombiningState(f"sum {number}", sum),
        OrderedListState(f"list {number}", int_),
    ]
    return {state.name.replace(" ", "_"): state for state in states}


_WithStates: Any = type(
    "_WithStates",
    (KeyedProcess,),
    {name: state for number in range(CHAINS) for name, state in _states(number).items()}
    | {"__module__": __name__},
)


class Accesses(_WithStates):  # type: ignore[misc]
    def access(self, number: int, access: Access | None) -> Any:
        assert access is not None
        kind, method, arguments = access
        return getattr(getattr(self, f"{kind}_{number}"), method)(*arguments)


class Runs(Accesses):
    """Runs programs with declared callbacks. Each gets the rest of its program by a variable."""

    def declare_process(self, ctx: DeclarationContext) -> Any:
        steps = [self._declare_steps(ctx, number) for number in range(CHAINS)]

        def element(pair: tuple[str, Program]) -> None:
            for step, chain in zip(steps, pair[1], strict=False):
                step(chain)

        return element

    def _declare_steps(self, ctx: DeclarationContext, number: int) -> Any:
        rest = ctx.declare_variable(FastPrimitivesCoder(), f"rest {number}", list)
        wrap = ctx.declare(f"wrap {number}", lambda result: (plain(result),))
        emit = ctx.declare(f"emit {number}", lambda result: ctx.output((ctx.key, number, result)))
        holds = ctx.declare(f"holds {number}", lambda result: bool(plain(result)))

        def next_step(result: Any) -> Any:
            if not rest.get():
                return ctx.completed(plain(result))
            step, *others = rest.get()
            rest.set(others)
            if len(step) == 1:
                return self.access(number, step[0]).then_compose(following)
            branches = [_branch(self, number, access) for access in step]
            conditional = ctx.completed(result).then_conditionally_compose(holds, *branches)
            return conditional.then_compose(following)

        following = ctx.declare(f"next {number}", next_step)

        def begin(chain: list[Step]) -> Any:
            rest.set(chain)
            return following(None).then_apply(wrap).then_accept(emit)

        return begin


def _branch(process: Accesses, number: int, access: Access | None) -> Any:
    return None if access is None else lambda _: process.access(number, access)


class RunsAnonymously(Accesses):
    """Runs programs with callbacks that are not declared, all added before the first one runs."""

    def process(self, ctx: DeclarationContext, element: tuple[str, Program]) -> None:
        for number, chain in enumerate(element[1]):
            future = self.access(number, chain[0][0])
            for step in chain[1:]:
                branches = [_branch(self, number, access) for access in step]
                if len(step) == 1:
                    future = future.then_compose(*branches)
                else:
                    future = future.then_conditionally_compose(
                        lambda result: bool(plain(result)), *branches
                    )
            combined = future.then_combine(ctx.completed(number), lambda a, b: (b, (plain(a),)))
            ctx.combine_all([combined]).then_accept(
                lambda results: ctx.output((ctx.key, *results[0]))
            )


class OnDicts:
    """Runs the programs of one key on plain Python values, one access after another."""

    def __init__(self) -> None:
        self._states: dict[str, Any] = {
            **{"value": None, "map": {}, "set": set(), "bag": [], "sum": 0},
            "list": defaultdict(list),
        }

    def run(self, chain: list[Step]) -> Any:
        """Return the result of a chain."""
        result: Any = None
        for step in chain:
            if len(step) == 1:
                assert step[0] is not None
                result = self.access(*step[0])
            else:
                holds = bool(plain(result))
                access = step[0] if holds else step[1]
                result = holds, None if access is None else plain(self.access(*access))
        return (plain(result),)

    def access(self, kind: str, method: str, arguments: tuple[Any, ...]) -> Any:
        found: Any = getattr(self, f"_{kind}")(method, *arguments)
        return found

    def _value(self, method: str, value: Any = None) -> Any:
        if method == "read":
            return self._states["value"]
        self._states["value"] = value
        return None

    def _map(self, method: str, key: Any = None, value: Any = None) -> Any:
        entries = self._states["map"]
        match method:
            case "get":
                return entries.get(key)
            case "contains":
                return key in entries
            case "items":
                return [*entries.items()]
            case "put":
                entries[key] = value
            case "remove":
                entries.pop(key, None)
            case "clear":
                entries.clear()
        return None

    def _set(self, method: str, key: Any = None) -> Any:
        match method:
            case "contains":
                return key in self._states["set"]
            case "read":
                return [*self._states["set"]]
            case "add":
                self._states["set"].add(key)
            case "remove":
                self._states["set"].discard(key)
            case "clear":
                self._states["set"].clear()
        return None

    def _bag(self, method: str, value: Any = None) -> Any:
        match method:
            case "read":
                return [*self._states["bag"]]
            case "add":
                self._states["bag"].append(value)
            case "clear":
                self._states["bag"] = []
        return None

    def _sum(self, method: str, value: Any = 0) -> Any:
        if method == "read":
            return self._states["sum"]
        self._states["sum"] = self._states["sum"] + value if method == "add" else 0
        return None

    def _list(self, method: str, first: Any = None, second: Any = None) -> Any:
        times = self._states["list"]
        match method:
            case "read":
                return [(time, value) for time in times for value in times[time]]
            case "read_range":
                return [
                    (time, value)
                    for time in times
                    if first <= time < second
                    for value in times[time]
                ]
            case "add":
                times[first].append(second)
            case "clear_range":
                for time in [time for time in times if first <= time < second]:
                    del times[time]
            case "clear":
                times.clear()
        return None


def expected(records: Iterable[tuple[str, Program]]) -> list[Any]:
    """Return what the records of some keys emit, sorted by its text."""
    keys: dict[tuple[str, int], OnDicts] = defaultdict(OnDicts)
    found = [
        (key, number, keys[key, number].run(chain))
        for key, chains in records
        for number, chain in enumerate(chains)
    ]
    return sorted(found, key=repr)
