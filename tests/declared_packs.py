"""Packs of random declarative pipelines (``declared_pipelines``), each pack as one pipeline."""

from typing import Any

import apache_beam as beam
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import TimestampedValue

from tests.declared_pipelines import TAGS, Recipe, expected, found_outputs, transform
from tests.harvest import Harvest


def _timestamped(recipe: Recipe) -> list[Any]:
    return [TimestampedValue((key, chains), at) for key, at, chains in recipe.elements]


def _outputs_of(p: beam.Pipeline, pairs: Any, recipe: Recipe, number: int) -> dict[str, Any]:
    each = beam.Map(lambda pair: pair).with_output_types(tuple[str, Any])
    outputs = transform(recipe, pairs | f"Pairs {number}" >> each, f"Step {number}")
    return {f"{number} {tag}": output for tag, output in outputs.items()}


def in_batch(recipes: list[Recipe]) -> Any:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        outputs: dict[str, Any] = {}
        for number, recipe in enumerate(recipes):
            made = p | f"Create {number}" >> beam.Create([_timestamped(recipe)], reshuffle=False)
            pairs = made | f"Each {number}" >> beam.FlatMap(lambda elements: elements)
            outputs.update(_outputs_of(p, pairs, recipe, number))
        return outputs

    return build


def in_epochs(recipes: list[Recipe]) -> Any:
    """Three elements of each pipeline in each epoch. No timer is due before the last one."""

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = Stream(coder=beam.coders.FastPrimitivesCoder())
        longest = max(len(recipe.elements) for recipe in recipes)
        for start in range(0, longest, 3):
            events.add_elements(
                [
                    TimestampedValue((number, each.value), each.timestamp)
                    for number, recipe in enumerate(recipes)
                    for each in _timestamped(recipe)[start : start + 3]
                ]
            )
        played = p | events.advance_watermark_to_infinity()
        outputs: dict[str, Any] = {}
        for number, recipe in enumerate(recipes):
            pairs = played | f"Own {number}" >> beam.FlatMap(
                lambda numbered, mine: [numbered[1]] if numbered[0] == mine else [], number
            )
            outputs.update(_outputs_of(p, pairs, recipe, number))
        return outputs

    return build


def check(found: Harvest, recipes: list[Recipe]) -> int:
    """Check what the pipelines have emitted, and return how much that is."""
    count = 0
    for number, recipe in enumerate(recipes):
        kept = {tag or "main": found.kept[f"{number} {tag or 'main'}"] for tag in TAGS}
        assert found_outputs(kept, recipe) == expected(recipe), recipe
        count += len(expected(recipe))
    return count
