"""Draws random pipelines."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.spark.random_pipelines.kinds import IN_THE_GLOBAL_WINDOW, KINDS
from tests.spark.random_pipelines.steps import ASIDE, WINDOWINGS

MANY, SOME = 80, 20
_MAX_ELEMENTS = 1_000
_MAX_STEPS = 4
_SHARE_SHOWN = 0.6


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        kind: one of ``KINDS``.
        inputs: the numbers of earlier collections.
        args: of the kind.
        is_shown: whether its elements are compared. What is not, only other steps read, and
            the harness may take all of them together. What nobody reads, is compared anyway.
    """

    kind: str
    inputs: tuple[int, ...] = ()
    args: tuple[Any, ...] = ()
    is_shown: bool = True


Recipe = tuple[Step, ...]


@dataclass(frozen=True)
class _Known:
    """A collection of the recipe so far."""

    holds: str
    windowing: str
    size: int  # elements, at most


_PAIRS_ASIDE = _Known("pairs", "global", SOME)


def chances() -> st.SearchStrategy[random.Random]:
    """Let Hypothesis draw a seed only: its own draws prefer what is small.

    The simplest seed is left out. Hypothesis tries it first, so that the only pack of a small run,
    and the first one of a large run, would be the same each time.
    """
    return st.binary(min_size=8, max_size=8).filter(any).map(random.Random)


def packs(size: int, kinds: Sequence[str] = ()) -> st.SearchStrategy[dict[int, Recipe]]:
    """Draw recipes.

    All kinds are dealt out to the recipes of a pack, like cards, so that it has as many
    different ones as it can.

    Args:
        size: recipes in a pack.
        kinds: to deal; by default, all.
    """
    return chances().map(lambda chance: _pack(chance, size, kinds or tuple(KINDS)))


def _pack(chance: random.Random, size: int, kinds: Sequence[str]) -> dict[int, Recipe]:
    deck = chance.sample(kinds, len(kinds))
    hands: list[list[str]] = [[] for _ in range(size)]
    for place in range(max(size, len(deck))):
        hands[place % size].append(deck[place % len(deck)])
    return {number: _Drawing(chance).recipe(hand) for number, hand in enumerate(hands)}


class _Drawing:
    """Draws one pipeline."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._steps: list[Step] = []
        self._known: list[_Known] = []

    def recipe(self, hand: Sequence[str]) -> Recipe:
        """Draw a pipeline with at least one step of each kind in ``hand``."""
        chance = self._chance
        if any(KINDS[kind].wants_many for kind in hand):
            self._create(MANY)
        else:
            self._create(SOME if hand else chance.choice([0, 1, 5, SOME]))
        pending = list(hand)
        for left in reversed(range(chance.randint(1, _MAX_STEPS))):
            if pending and chance.randint(0, left) < len(pending):
                self._add_wanted(pending.pop())
            else:
                self._add(self._some_kind())
        for kind in pending:
            self._add_wanted(kind)
        return tuple(self._steps)

    def _some_kind(self) -> str:
        held = {"", *(each.holds for each in self._known)}
        kinds = [name for name, kind in KINDS.items() if kind.takes in held]
        weights = [_weight(name) for name in kinds]
        return self._chance.choices(kinds, weights)[0]

    def _add_wanted(self, name: str) -> None:
        """Add a step, and before it what it takes, if there is none."""
        kind = KINDS[name]
        if kind.takes == "groups":
            self._collect(passed_on=bool(kind.beside))
        elif kind.takes == "pairs" and not self._some("pairs"):
            self._add_wanted("pair")
        if kind.beside and not self._some(kind.beside, ASIDE):  # nor are there pairs in them
            assert kind.takes != "groups", "the last collection holds them"
            self._create(SOME)
            if kind.beside == "pairs":
                self._pair(3)
        source = len(self._known) - 1 if kind.takes == "groups" else None
        added = self._add(name, source, must=True)
        assert added, f"{name}: nothing it could take in {self._steps}"

    def _some(self, holds: str, windowings: Sequence[str] = tuple(WINDOWINGS)) -> list[int]:
        return [
            number
            for number, each in enumerate(self._known)
            if holds in ("", each.holds) and each.windowing in windowings
        ]

    def _create(self, count: int) -> None:
        numbers = tuple(self._chance.randint(0, 40) for _ in range(count))
        self._keep(Step("create", (), numbers, False), _Known("numbers", "global", count))

    def _pair(self, keys: int) -> None:
        """Make pairs of the numbers that were just created."""
        self._keep(Step("pair", (len(self._steps) - 1,), (keys,), False), _PAIRS_ASIDE)

    def _collect(self, *, passed_on: bool) -> None:
        """Make groups of a few keys, so that most are large.

        If they are ``passed_on``, the stage that reads them from the exchange is not the one that
        takes them: a step with a side input begins another.
        """
        self._create(SOME)
        self._pair(2)
        self._add("collect", len(self._steps) - 1)
        if passed_on:
            self._add("pass on", len(self._steps) - 1)

    def _add(self, name: str, source: int | None = None, *, must: bool = False) -> bool:
        """Add a step of a kind, unless there is nothing that it could take.

        If it ``must`` be, to a collection which is small enough and large enough.
        """
        kind, chance = KINDS[name], self._chance
        if name == "create":
            self._create(chance.choice([0, 1, 5, SOME]))
            return True
        sources = self._some(kind.takes)
        if must:
            least = MANY if kind.wants_many else SOME
            sources = [n for n in sources if least <= self._known[n].size <= 3 * MANY] or sources
        if source is None:
            source = chance.choice(sources)
        known = self._known[source]
        inputs = [source]
        size = known.size * kind.grows
        if kind.joins:
            inputs.append(chance.choice(self._some(known.holds, [known.windowing])))
            size += self._known[inputs[1]].size
        elif kind.beside:
            beside = self._some(kind.beside, ASIDE)
            if not beside:
                return False
            inputs.append(chance.choice(beside))
        if size > _MAX_ELEMENTS and not must:
            return False
        windowing = known.windowing
        arg: Any = chance.randint(1, 5)
        if name == "window":
            arg = windowing = chance.choice(list(WINDOWINGS))
        elif name in IN_THE_GLOBAL_WINDOW:
            windowing = "global"
        step = Step(name, tuple(inputs), (arg,), chance.random() < _SHARE_SHOWN)
        self._keep(step, _Known(kind.gives or known.holds, windowing, size))
        return True

    def _keep(self, step: Step, known: _Known) -> None:
        self._steps.append(step)
        self._known.append(known)


def _weight(name: str) -> float:
    """Return how often a kind is drawn; those that are dealt out anyway less."""
    kind = KINDS[name]
    if kind.wants_many or kind.is_dealt:
        return 0.2
    return 3 if {kind.takes, kind.gives} & {"pairs", "groups"} or name == "window" else 1
