"""Pipelines of PipelineDP, with so little noise that their results are known."""

from typing import Any

import apache_beam as beam
import pipeline_dp
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import BeamAssertException, assert_that
from pipeline_dp import private_beam

VISITS = [(f"user {user}", f"day {user % 5}", float(user % 7)) for user in range(500)]
EXPECTED = {
    f"day {day}": (100, sum(price for _, of, price in VISITS if of == f"day {day}"))
    for day in range(5)
}
EPSILON = 1e5


def _is_near(expected: dict[str, Any]) -> Any:
    def check(actual):  # type: ignore[no-untyped-def]  # Beam reads annotations as type hints
        found = dict(actual)
        if found.keys() != expected.keys():
            raise BeamAssertException(f"{found.keys()}")
        for key, values in expected.items():
            if found[key] != pytest.approx(values, abs=0.1):
                raise BeamAssertException(f"{key}: {found[key]}, not {values}")

    return check


@pytest.mark.parametrize("is_public", [True, False], ids=["public", "private"])
def test_sums_and_counts(is_public: bool) -> None:
    budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=1e-2)
    engine = pipeline_dp.DPEngine(budget, pipeline_dp.BeamBackend())
    params = pipeline_dp.AggregateParams(
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        metrics=[pipeline_dp.Metrics.COUNT, pipeline_dp.Metrics.SUM],
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
        min_value=0,
        max_value=6,
    )
    extractors = pipeline_dp.DataExtractors(
        privacy_id_extractor=lambda row: row[0],
        partition_extractor=lambda row: row[1],
        value_extractor=lambda row: row[2],
    )
    with TestPipeline() as pipeline:
        rows = pipeline | beam.Create(VISITS)
        public = sorted(EXPECTED) if is_public else None
        result = engine.aggregate(rows, params, extractors, public)
        budget.compute_budgets()
        pairs = result | beam.MapTuple(lambda key, of: (key, (of.count, of.sum)))
        assert_that(pairs, _is_near(EXPECTED))


def test_private_collections() -> None:
    budget = pipeline_dp.NaiveBudgetAccountant(total_epsilon=EPSILON, total_delta=1e-2)
    with TestPipeline() as pipeline:
        private = (
            pipeline
            | beam.Create(VISITS)
            | private_beam.MakePrivate(budget, privacy_id_extractor=lambda row: row[0])
        )
        counts = private | private_beam.Count(
            pipeline_dp.CountParams(
                noise_kind=pipeline_dp.NoiseKind.LAPLACE,
                max_partitions_contributed=1,
                max_contributions_per_partition=1,
                partition_extractor=lambda row: row[1],
            )
        )
        budget.compute_budgets()
        assert_that(counts, _is_near({key: count for key, (count, _) in EXPECTED.items()}))
