"""One task leaves residuals for a later Spark job while another one fails for good."""

import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pytest

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import run
from tests.spark.restrictions import RESTRICTION

pytestmark = pytest.mark.spark


class CountOrFail(beam.DoFn):  # type: ignore[misc]
    """Counts slowly, for longer than a round; what is called "bad" raises at once."""

    def process(
        self, element: tuple[str, int], tracker: Any = RESTRICTION
    ) -> Iterator[tuple[str, int]]:
        if element[0] == "bad":
            raise ValueError("mine")
        position = tracker.current_restriction().start
        while tracker.try_claim(position):
            time.sleep(0.05)
            yield element[0], position
            position += 1


@pytest.mark.parametrize(
    "levels",
    [
        pytest.param(1, id="one level after", marks=pytest.mark.rare),
        pytest.param(2, id="two levels after"),
    ],
)
def test_the_users_error_is_the_pipelines(spark_session: Any, levels: int) -> None:
    def build(p: beam.Pipeline) -> None:
        counted = (
            p | beam.Create([("good", 40), ("bad", 40)]) | "Count" >> beam.ParDo(CountOrFail())
        )
        for level in range(levels):
            counted = (
                counted
                | f"Group {level}" >> beam.GroupByKey()
                | f"Flat {level}" >> beam.FlatMapTuple(lambda key, them: [(key, n) for n in them])
            )

    with pytest.raises(BundleFailedError) as raised:
        run(spark_session, build, "--sdf_round_budget=0.1")
    assert raised.value.step == "Count"
    assert raised.value.cause == "ValueError: mine"
