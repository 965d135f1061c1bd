"""What a task says that cannot read the rows for a table."""

from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest

from beam_spark_runner.core.errors import OutputStorageError
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.engine.task.table_files import TableFiles


def test_the_driver_recognises_that_the_folder_does_not_answer(tmp_path: Path) -> None:
    """It finds the error in the text of Spark's, and tries again."""
    places = ShardLocations(lineage="main", deltas=str(tmp_path), local=None, key_groups=8)
    files = TableFiles(places, pa.schema([("id", pa.int64())]))
    with pytest.raises(OutputStorageError) as raised:
        list(files.read(["main-1.table"]))
    found = OutputStorageError.found_in(f"OutputStorageError: {raised.value}")
    assert found is not None
    assert found.place == f"{tmp_path}/main-1.table"


def test_no_two_rows_of_an_epoch_have_one_number() -> None:
    schema = pa.schema([("id", pa.int64())])
    places = ShardLocations(lineage="main", deltas="/none", local=None, key_groups=8)
    files = TableFiles(places, schema)
    batches = [pa.record_batch([pa.array(ids, pa.int64())], schema) for ids in ([7, 8], [9])]
    numbers = []
    with mock.patch.object(TableFiles, "read", side_effect=lambda names: iter(batches)):
        for number in (0, 3):
            for batch in files.read_numbered("main-1.table", number, "nth"):
                assert batch.schema.names == ["id", "nth"]
                numbers += batch["nth"].to_pylist()
    of_fourth = 3 << 40
    assert numbers == [0, 1, 2, of_fourth, of_fourth + 1, of_fourth + 2]
