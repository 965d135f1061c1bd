"""Rows that do not fit the schema of a table, as dead letters."""

from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest

from beam_spark_runner.transforms.dead_letters import DEAD_LETTERS
from beam_spark_runner.transforms.spark_tables.asking import schema_given
from beam_spark_runner.transforms.spark_tables.write import EncodeBatchesOrReject, WriteToSpark

SCHEMA = schema_given("n INT NOT NULL, word STRING")


def encoded(rows: list[Any], most: int | None = None) -> tuple[list[Any], dict[str, str]]:
    """Return the rows of all batches, and the problem of each dead letter."""
    step = EncodeBatchesOrReject(SCHEMA)
    step.setup()
    if most is not None:
        step._most = most
    step.start_bundle()
    outputs = [output for row in rows for output in step.process(row)]
    outputs += step.finish_bundle()
    good, bad = [], {}
    for output in outputs:
        if isinstance(output, beam.pvalue.TaggedOutput):
            assert output.tag == DEAD_LETTERS
            row, (_, text, _) = getattr(output.value, "value", output.value)
            bad[repr(row)] = text
        else:
            with pa.ipc.open_stream(getattr(output, "value", output)) as reader:
                good += reader.read_all().to_pylist()
    return good, bad


def row(number: Any, word: Any = "w") -> dict[str, Any]:
    return {"n": number, "word": word}


@pytest.mark.parametrize("most", [1, 3, None])
def test_all_others_are_encoded_in_their_order(most: int | None) -> None:
    rows = [row(1), row(None), row(2), row("three"), row(2**40), row(4), {"word": "x"}, 5, row(6)]
    good, bad = encoded(rows, most)
    assert good == [row(1), row(2), row(4), row(6)]
    assert bad.keys() == {repr(each) for each in (rows[1], rows[3], rows[4], rows[6], 5)}
    assert "column n: it may not be null" in bad[repr(rows[1])]
    assert "column n: a value does not fit into INT" in bad[repr(rows[4])]
    assert "column n: a row does not have it" in bad[repr(rows[6])]


def test_rows_around_one_that_is_refused_are_in_one_batch() -> None:
    step = EncodeBatchesOrReject(SCHEMA)
    step.setup()
    step.start_bundle()
    rows = [row(None if number % 50 == 7 else number) for number in range(2000)]
    outputs = [output for each in rows for output in step.process(each)]
    outputs += step.finish_bundle()
    batches = [output for output in outputs if not isinstance(output, beam.pvalue.TaggedOutput)]
    assert len(batches) < 10


def test_rows_of_several_classes_are_written_apart() -> None:
    rows = [row(1), beam.Row(n=2, word="w"), row(None), beam.Row(n=3, word="w"), row(4)]
    good, bad = encoded(rows)
    assert good == [row(number) for number in (1, 2, 3, 4)]
    assert bad.keys() == {repr(row(None))}


def test_nothing_is_refused_or_nothing_is_left() -> None:
    assert encoded([row(1)]) == ([row(1)], {})
    assert encoded([row(None)])[0] == []
    assert encoded([]) == ([], {})


def test_the_transform_has_two_outputs() -> None:
    rows = beam.Pipeline() | beam.Create([row(1)])
    sink = WriteToSpark(path="/t", schema="n INT, word STRING")
    good, bad = rows | "Rejecting" >> sink.with_exception_handling()
    assert good.producer.full_label == "Rejecting/Result"
    assert bad.tag == DEAD_LETTERS
    assert isinstance(rows | "Failing" >> sink, beam.PCollection)
