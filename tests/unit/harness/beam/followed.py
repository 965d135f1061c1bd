"""Builds chains of the steps of ``chains``, at random or by name."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import apache_beam as beam

from tests.unit.harness.beam.chains import MIXED, STEPS, WITH_RESOURCES, Step

MAX_OF_ONE = 100  # elements of a collection for each element of the source
WATCHING = "keeping windows"


class Collection(NamedTuple):
    """A collection of a pipeline, and what is known of it.

    Attributes:
        beams: Beam's collection.
        of: What it consists of.
        name: The steps on the way to it.
        is_in_order: Whether the order of its elements is that of Beam's own operations.
        factor: How many elements there are for each element of the source, about.
        is_watched: Whether its windows come from a fn that depends on the order.
    """

    beams: Any
    of: str
    name: str
    is_in_order: bool = True
    factor: int = 1
    is_watched: bool = False


def follow(source: Any, of: str, choices: Iterable[tuple[int, int]]) -> list[Collection]:
    """Build chains from a collection; return all their collections.

    Args:
        source: Beam's collection.
        of: What it consists of.
        choices: For each step, which of the collections so far it reads, and which of the steps
            that may read it is taken.
    """
    made = [Collection(source, of, "source", is_in_order=of != MIXED)]
    for label, (place, number) in enumerate(choices):
        read = made[-1 - place % len(made)]
        names = [name for name, step in STEPS.items() if _may_follow(read, step)]
        picked = number % (len(names) + 1)
        if picked == len(names):
            made.append(_flattened(read, made[0], f"{label} flatten"))
            continue
        name = names[picked]
        step = STEPS[name]
        outputs = step.apply(read.beams, f"{label} {name}")
        for output, kind in zip(outputs, step.gives(read.of), strict=True):
            made.append(
                Collection(
                    output,
                    kind,
                    f"{read.name} > {name}",
                    is_in_order=read.is_in_order and kind != MIXED,
                    factor=read.factor * step.factor,
                    is_watched=read.is_watched or name == WATCHING,
                )
            )
    return made


def chain(source: Any, of: str, names: Iterable[str]) -> list[Collection]:
    """Build one chain of the steps of these names, each with one output."""
    made = [Collection(source, of, "source")]
    for label, name in enumerate(names):
        step = (STEPS | WITH_RESOURCES)[name]
        (output,) = step.apply(made[-1].beams, f"{label} {name}")
        (kind,) = step.gives(made[-1].of)
        made.append(Collection(output, kind, f"{made[-1].name} > {name}"))
    return made


def _may_follow(read: Collection, step: Step) -> bool:
    needs_order = step.needs_order or (step.stamps and read.is_watched)
    return (
        read.of in step.takes
        and (read.is_in_order or not needs_order)
        and read.factor * step.factor <= MAX_OF_ONE
    )


def _flattened(first: Collection, second: Collection, label: str) -> Collection:
    return Collection(
        (first.beams, second.beams) | label >> beam.Flatten(),
        MIXED,
        f"({first.name} + {second.name})",
        is_in_order=False,
        factor=first.factor + second.factor,
        is_watched=first.is_watched or second.is_watched,
    )
