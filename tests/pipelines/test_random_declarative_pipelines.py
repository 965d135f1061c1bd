"""Random pipelines of declarative steps emit what a model says: here and on Beam's own runner.

Each pack of them is one pipeline.
"""

import dataclasses
import operator
import random
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.prism_runner import PrismRunner
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.window import TimestampedValue
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.declared_pipelines import (
    TAGS,
    Recipe,
    draw_pack,
    expected,
    found_outputs,
    transform,
)
from tests.declared_programs import OPERATIONS
from tests.harvest import Harvest, harvest, harvest_on
from tests.spark.random_streams.references import prism

PACK = 10
PACKS = [1, pytest.param(20, marks=[pytest.mark.rare, pytest.mark.timeout(1200)])]


def timestamped(recipe: Recipe) -> list[Any]:
    return [TimestampedValue((key, chains), at) for key, at, chains in recipe.elements]


def outputs_of(p: beam.Pipeline, pairs: Any, recipe: Recipe, number: int) -> dict[str, Any]:
    each = beam.Map(lambda pair: pair).with_output_types(tuple[str, Any])
    outputs = transform(recipe, pairs | f"Pairs {number}" >> each, f"Step {number}")
    return {f"{number} {tag}": output for tag, output in outputs.items()}


def in_batch(recipes: list[Recipe]) -> Any:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        outputs: dict[str, Any] = {}
        for number, recipe in enumerate(recipes):
            made = p | f"Create {number}" >> beam.Create([timestamped(recipe)], reshuffle=False)
            pairs = made | f"Each {number}" >> beam.FlatMap(lambda elements: elements)
            outputs.update(outputs_of(p, pairs, recipe, number))
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
                    for each in timestamped(recipe)[start : start + 3]
                ]
            )
        played = p | events.advance_watermark_to_infinity()
        outputs: dict[str, Any] = {}
        for number, recipe in enumerate(recipes):
            pairs = played | f"Own {number}" >> beam.FlatMap(
                lambda numbered, mine: [numbered[1]] if numbered[0] == mine else [], number
            )
            outputs.update(outputs_of(p, pairs, recipe, number))
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


def drawing(packs: int) -> settings:
    return settings(
        max_examples=packs,
        deadline=None,
        phases=[Phase.generate],  # a pack would not become smaller; the failed assertion has one
        suppress_health_check=list(HealthCheck),
        derandomize=packs == 1,
    )


@pytest.mark.parametrize("packs", PACKS)
def test_like_the_model_and_beams_runner(spark_session: Any, packs: int) -> None:
    emitted: list[int] = []

    @drawing(packs)
    @given(seed=st.integers(0, 1 << 32))
    def compare(seed: int) -> None:
        recipes = draw_pack(random.Random(seed), PACK)
        emitted.append(check(harvest(spark_session, in_batch(recipes)), recipes))
        check(harvest(spark_session, in_epochs(recipes), "--streaming"), recipes)
        check(harvest_on("FnApiRunner", in_batch(recipes)), recipes)

    compare()
    print(f"{PACK * len(emitted)} pipelines, {sum(emitted)} elements")
    assert sum(emitted) > 50 * packs


@pytest.mark.rare
@pytest.mark.timeout(600)
@pytest.mark.skipif(not prism(), reason="Prism is not installed")
def test_like_prism() -> None:
    """Prism orders the elements of a key by time. With ordered lists it hangs, or ends."""
    kinds = [kind for kind in OPERATIONS if kind != "list"]

    @drawing(10)
    @given(seed=st.integers(0, 1 << 32))
    def compare(seed: int) -> None:
        recipes = [
            dataclasses.replace(each, elements=sorted(each.elements, key=operator.itemgetter(1)))
            for each in draw_pack(random.Random(seed), PACK, kinds)
        ]
        flags = f"--prism_location={prism()}", "--prism_log_level=error"
        check(harvest_on(PrismRunner(), in_batch(recipes), *flags), recipes)

    compare()
