"""A whole pipeline on Spark Connect; the others are in ``integration/test_connect.py``."""

from pathlib import Path

import pytest

from tests.spark.test_session import run_script

_PIPELINE = """
    import apache_beam as beam
    from apache_beam.testing.util import assert_that, equal_to

    with beam.Pipeline(argv=["--runner=SparkPortableRunner"]) as p:
        words = p | beam.Create(["a b", "b c", "c b"]) | beam.FlatMap(str.split)
        total = words | beam.combiners.Count.Globally()
        counts = (
            words
            | beam.combiners.Count.PerElement()
            | "Share" >> beam.Map(lambda pair, n: (*pair, n), beam.pvalue.AsSingleton(total))
        )
        # Two materialised collections are the input of one segment.
        both = (counts, words | "Others" >> beam.Map(lambda word, n: (word, 0, n),
                beam.pvalue.AsSingleton(total))) | beam.Flatten() | beam.Distinct()
        assert_that(both, equal_to([("a", 1, 6), ("b", 3, 6), ("c", 2, 6),
                                    ("a", 0, 6), ("b", 0, 6), ("c", 0, 6)]))
    """


@pytest.mark.rare
@pytest.mark.connect
@pytest.mark.slow
def test_segments_with_two_inputs(connect_server: str, tmp_path: Path) -> None:
    run_script(_PIPELINE, tmp_path, SPARK_REMOTE=connect_server)
