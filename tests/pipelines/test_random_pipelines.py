"""Random pipelines give the same elements, times, windows and panes as Beam's own runner.

And those with a step that raises fail as on Beam's own runner. ``RANDOM_PIPELINES`` says how many
are drawn, and ``RANDOM_KINDS`` which kinds of steps are dealt to them; all, if it is not set.
A few are the same each time, unless ``--hypothesis-seed`` is given.
"""

import os
from collections import Counter
from typing import Any

import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import HealthCheck, Phase, given, settings

from beam_spark_runner import SparkPortableRunner
from tests.harvest import REUSED_PROCESS, SPREAD
from tests.spark.random_pipelines.failing import Failing, check_same_failure, failure_of, failures
from tests.spark.random_pipelines.kinds import KINDS, crosses_to_harnesses
from tests.spark.random_pipelines.recipes import Recipe, Step, packs
from tests.spark.random_pipelines.running import (
    SMALL_MEMORY,
    by_beams_runner,
    by_our_runner,
    check_same,
)

pytestmark = pytest.mark.slow

COUNT = int(os.environ.get("RANDOM_PIPELINES", "8"))
DEALT = [kind for kind in os.environ.get("RANDOM_KINDS", "").split(";") if kind]
PACK = min(50, COUNT)
EMBEDDED = PACK * 4 // 5  # of a pack; the others run in SDK harnesses
TO_HARNESSES = [
    name
    for name, kind in KINDS.items()
    if "groups" in (kind.takes, kind.gives) or crosses_to_harnesses(name)
]
"""Kinds that are dealt to pipelines in SDK harnesses: what crosses to them in ways of its own."""
BUDGETS = ((), (SPREAD,), ("--single_task_budget=0.000001",))
"""One task runs all levels; or none does; or one stops as soon as it can."""
FAILING = max(5, COUNT // 20)


@pytest.fixture
def drawing(pytestconfig: pytest.Config) -> settings:
    """How to draw."""
    return settings(
        deadline=None,
        derandomize=COUNT <= 50 and pytestconfig.getoption("--hypothesis-seed") is None,
        phases=[Phase.generate],  # ``check_same`` shows what matters of a pack
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


@pytest.mark.grpc
@pytest.mark.timeout(60 * COUNT)
@pytest.mark.rare
def test_like_beams_own_runner(spark_session: Any, drawing: settings) -> None:
    """Each pack in several pipelines: in the Python workers, and in SDK harnesses next to them."""
    kinds: Counter[str] = Counter()
    elements: list[int] = []
    ran: list[int] = []

    @settings(drawing, max_examples=max(1, COUNT // PACK))
    @given(embedded=packs(EMBEDDED, DEALT), remote=packs(PACK - EMBEDDED, DEALT or TO_HARNESSES))
    def compare(embedded: dict[int, Recipe], remote: dict[int, Recipe]) -> None:
        remote = {PACK + number: recipe for number, recipe in remote.items()}
        beams, pack = by_beams_runner({**embedded, **remote})
        runner = SparkPortableRunner(spark=spark_session)
        ours: Counter[str] = Counter()
        parts = [(embedded, flags, part) for part, flags in enumerate(BUDGETS)]
        for some, flags, part in (*parts, (remote, REUSED_PROCESS, None)):
            ran_there = {
                number: recipe
                for number, recipe in some.items()
                if number in pack and part in (None, number % len(BUDGETS))
            }
            ours += by_our_runner(runner, ran_there, *SMALL_MEMORY, *flags)
        check_same(ours, beams, pack)
        kinds.update(step.kind for recipe in pack.values() for step in recipe)
        elements.append(ours.total())
        ran.append(len(pack))

    compare()
    print(f"{sum(ran)} pipelines, {sum(elements)} elements; {kinds.total()} steps: ", end="")
    print(dict(kinds.most_common()))
    assert sum(ran) >= 0.95 * COUNT, "Beam's runner gave up on the others"
    assert sum(elements) > 10 * COUNT
    assert set(kinds) == set(KINDS) or DEALT


@pytest.mark.timeout(60 * COUNT)
def test_failures_like_beams_own_runner(spark_session: Any, drawing: settings) -> None:
    @settings(drawing, max_examples=1)
    @given(drawn=failures(FAILING))
    def compare(drawn: list[Failing]) -> None:
        for failing in drawn:
            theirs = failure_of(FnApiRunner(), failing)
            ours = failure_of(SparkPortableRunner(spark=spark_session), failing)
            check_same_failure(ours, theirs, failing)

    compare()


def test_a_difference_is_shown() -> None:
    """Else the tests above would show nothing."""
    recipe = (Step("create", (), (1,)), Step("map", (0,), (2,)))
    ours, theirs = Counter(["0.0: 1", "0.1: 3"]), Counter(["0.0: 1", "0.1: 3", "0.1: 4"])
    with pytest.raises(AssertionError, match=r"(?s)1: Step\(kind='map'.*there: 1 .*    0.1: 4"):
        check_same(ours, theirs, {0: recipe})
