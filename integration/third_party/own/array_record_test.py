"""A pipeline that writes files with the sink of ``array_record.beam``."""

from pathlib import Path

import apache_beam as beam
from apache_beam.testing.test_pipeline import TestPipeline
from array_record.beam.arrayrecordio import WriteToArrayRecord
from array_record.python.array_record_module import ArrayRecordReader

RECORDS = [f"record {number}".encode() for number in range(1000)]


def test_shards(tmp_path: Path) -> None:
    with TestPipeline() as pipeline:
        pipeline | beam.Create(RECORDS) | WriteToArrayRecord(f"{tmp_path}/records", num_shards=3)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [f"records-0000{n}-of-00003" for n in range(3)]
    found: list[bytes] = []
    for file in files:
        reader = ArrayRecordReader(str(file))
        found += reader.read_all()
        reader.close()
    assert sorted(found) == sorted(RECORDS)
