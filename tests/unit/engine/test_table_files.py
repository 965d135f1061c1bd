"""What a task says that cannot read the rows for a table."""

from pathlib import Path

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
