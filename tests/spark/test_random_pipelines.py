"""Random pipelines give the same elements, times, windows and panes as Beam's own runner."""

import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from beam_spark_runner import SparkPortableRunner
from tests.spark.random_pipelines import (
    Recipe,
    Step,
    by_beams_runner,
    check_same,
    elements_of,
    packs,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COUNT = int(os.environ.get("RANDOM_PIPELINES", "50"))
PACK = 25


@pytest.mark.timeout(60 * COUNT)
def test_like_beams_own_runner(spark_session: Any) -> None:
    kinds: Counter[str] = Counter()
    elements: list[int] = []
    ran: list[int] = []

    @settings(
        max_examples=COUNT // PACK,
        deadline=None,
        derandomize=COUNT <= 50,
        phases=[Phase.generate],  # ``check_same`` shows what matters of a pack
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(pack=packs(PACK))
    def compare(pack: dict[int, Recipe]) -> None:
        beams, pack = by_beams_runner(pack)
        ours = elements_of(SparkPortableRunner(spark=spark_session), pack)
        check_same(ours, beams, pack)
        kinds.update(step.kind for recipe in pack.values() for step in recipe)
        elements.append(ours.total())
        ran.append(len(pack))

    compare()
    print(f"{sum(ran)} pipelines, {sum(elements)} elements; {kinds.total()} steps: ", end="")
    print(dict(kinds.most_common()))
    assert sum(ran) >= 0.95 * COUNT, "Beam's runner gave up on the others"
    assert sum(elements) > 10 * COUNT
    assert len(kinds) > 20


def test_a_difference_is_shown() -> None:
    """Else the test above would show nothing."""
    recipe = (Step("create", (), (1,)), Step("map", (0,), (2,)))
    ours, theirs = Counter(["0.0: 1", "0.1: 3"]), Counter(["0.0: 1", "0.1: 3", "0.1: 4"])
    with pytest.raises(AssertionError, match=r"(?s)1: Step\(kind='map'.*there: \['0.1: 4'\]"):
        check_same(ours, theirs, {0: recipe})
