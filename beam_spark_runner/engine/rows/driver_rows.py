"""Rows that the driver makes."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_spark_runner.core import routing
from beam_spark_runner.core.ids import DestinationId
from beam_spark_runner.engine.rows import schema

Rows = Sequence[tuple[int, bytes]]
"""Destinations, flags included, and values."""


def control_rows(rows: Rows) -> list[pa.RecordBatch]:
    """Return the mark of an epoch and elements, as each task of the first level reads them."""
    control = routing.route_prefix(routing.CONTROL_CODE)
    batches = []
    for dest, alike in itertools.groupby(rows, key=lambda row: row[0]):
        values = [value for _, value in alike]
        routes = np.full(len(values), control, np.int64)
        batches.append(schema.batch_of(dest, routes, None, None, values))
    return batches


def first_rows(elements: Mapping[DestinationId, bytes]) -> list[pa.RecordBatch]:
    """Return one row for each of some encoded elements, by destination."""
    return [
        schema.batch_of(dest, np.zeros(1, np.int64), None, None, [element])
        for dest, element in elements.items()
    ]
