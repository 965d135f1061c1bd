"""Registers ``pyarrow.RecordBatch`` as a batch type of Beam's batch DoFns."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from apache_beam.typehints.batch import BatchConverter
from apache_beam.typehints.row_type import RowTypeConstraint
from typing_extensions import override

from beam_spark_runner.transforms.spark_tables.beam_types import schema_of_hint
from beam_spark_runner.transforms.spark_tables.from_arrow import rows_of
from beam_spark_runner.transforms.spark_tables.to_arrow import BatchEncoder


class RecordBatchConverter(BatchConverter):  # type: ignore[misc]
    """Converts between rows and ``pyarrow.RecordBatch``, also logical types, as Beam's does not.

    Args:
        element_type: The type of the rows, a ``RowTypeConstraint``.
        schema: Their schema in Spark's JSON.
    """

    def __init__(self, element_type: Any, schema: str) -> None:
        super().__init__(pa.RecordBatch, element_type)
        self._arguments = element_type, schema
        self._encoder = BatchEncoder(schema)

    def produce_batch(self, elements: Iterable[Any]) -> pa.RecordBatch:
        """Convert rows to a batch."""
        return self._encoder.batch(list(elements))

    def explode_batch(self, batch: pa.RecordBatch) -> Iterator[Any]:
        """Convert a batch to rows."""
        return iter(rows_of(batch))

    def combine_batches(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Concatenate batches."""
        return pa.concat_batches(batches)

    def get_length(self, batch: pa.RecordBatch) -> int:
        """Return the number of rows."""
        return int(batch.num_rows)

    def estimate_byte_size(self, batch: pa.RecordBatch) -> int:
        """Return the memory of a batch in bytes."""
        return int(batch.nbytes)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return RecordBatchConverter, self._arguments


def register() -> None:
    """Register ``RecordBatchConverter`` with Beam; to be called once."""
    BatchConverter.register(name="beam_spark_runner.RecordBatch")(_converter)


def _converter(element_type: Any, batch_type: Any) -> RecordBatchConverter:
    # Beam tries one converter after another until one does not raise a TypeError.
    if batch_type is not pa.RecordBatch:
        raise TypeError("batch type must be pyarrow.RecordBatch")
    if not isinstance(element_type, RowTypeConstraint):
        element_type = RowTypeConstraint.from_user_type(element_type)
    try:
        schema = None if element_type is None else schema_of_hint(element_type)
    except ValueError as error:
        raise TypeError(str(error)) from error
    if schema is None:
        raise TypeError("elements in RecordBatches must have a schema")
    return RecordBatchConverter(element_type, schema)
