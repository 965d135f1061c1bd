"""Compares what two runners give for random pipelines that stream."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from tests.spark.random_streams.recipes import Pack, Recipe
from tests.spark.random_streams.running import Dropped, Given, Outputs, label_of
from tests.spark.random_streams.steps import GROUPINGS

_MAX_LINES = 12  # of what differs


def check_same(
    ours: Outputs, theirs: Outputs, pack: Pack, numbers: Iterable[int], who: str
) -> None:
    """Fail with each pipeline that differs, up to its first step that does.

    Args:
        ours: what this runner gives.
        theirs: what another one gives, or the model.
        pack: of both.
        numbers: the pipelines to compare.
        who: gives ``theirs``.
    """
    found = []
    for number in numbers:
        recipe = pack.recipes[number]
        for place in _shown(recipe):
            label = label_of(number, place)
            if ours[label] != theirs[label]:
                found.append(
                    f"{_steps(recipe, place)}\n"
                    f"only here: {_lines(ours[label] - theirs[label])}\n"
                    f"only {who}: {_lines(theirs[label] - ours[label])}"
                )
                break
    if found:
        raise AssertionError("\n".join([_script(pack), *found]))


def check_same_unions(
    ours: Outputs, theirs: Outputs, pack: Pack, numbers: Iterable[int], who: str
) -> None:
    """Fail with each pipeline whose first grouping differs in what all its panes have together.

    For pipelines whose panes depend on what is open in the model. See ``check_same``.
    """
    found = []
    for number in numbers:
        recipe = pack.recipes[number]
        label = label_of(number, first_grouping(recipe))
        if (here := _unions(ours[label])) != (there := _unions(theirs[label])):
            differs = [key for key in here.keys() | there.keys() if here[key] != there[key]]
            lines = [f"{key}: {here[key]}, {who} {there[key]}" for key in sorted(differs)]
            found.append("\n    ".join([_steps(recipe, len(recipe.steps)), *lines[:_MAX_LINES]]))
    if found:
        raise AssertionError("\n".join([_script(pack), *found]))


def check_dropped(ours: Dropped, model: Dropped, pack: Pack) -> None:
    """Fail unless each step has counted the elements that came too late.

    Where a combiner is lifted, what a bundle has made of some of them counts as one.
    """
    found = []
    for number, recipe in pack.recipes.items():
        for place, step in enumerate(recipe.steps):
            label = label_of(number, place)
            here, there = ours[label], model[label]
            may_be_lifted = step.kind.startswith("concat")
            if here != there and not (may_be_lifted and 0 < here < there):
                found.append(f"{_steps(recipe, place)}\n{here} dropped, {there} by the model")
    if found:
        raise AssertionError("\n".join([_script(pack), *found]))


def first_grouping(recipe: Recipe) -> int:
    """Return the place of a pipeline's first grouping."""
    return next(place for place, step in enumerate(recipe.steps) if step.kind in GROUPINGS)


def _unions(panes: Counter[Given]) -> defaultdict[tuple[str, str], list[int]]:
    """Return by key and window what all panes have together, each number once."""
    unions: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for pane in panes:
        unions[pane.key, pane.window].update(pane.numbers)
    return defaultdict(list, {key: sorted(numbers) for key, numbers in unions.items()})


def _shown(recipe: Recipe) -> Sequence[int]:
    return [place for place, step in enumerate(recipe.steps) if step.kind != "window"]


def _script(pack: Pack) -> str:
    return "\n".join(map(str, pack.script))


def _steps(recipe: Recipe, last: int) -> str:
    lines = [f"  {place}: {step}" for place, step in enumerate(recipe.steps[: last + 1])]
    return "\n".join([f"from {recipe.sources}", *lines])


def _lines(elements: Counter[Given]) -> str:
    some = sorted(map(str, elements.elements()))
    return "\n    ".join([f"{len(some)} elements", *some[:_MAX_LINES]])
