"""``ReadFromCroissant`` gives the records that Croissant gives without Beam."""

import hashlib
import json
from pathlib import Path

import mlcroissant as mlc
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import BeamAssertException, assert_that

FILE = "numbers.csv"
FIELDS = {"number": mlc.DataType.INTEGER, "word": mlc.DataType.TEXT}


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    """A data set of one file with 200 rows."""
    rows = [f"{number},word {number % 7}" for number in range(200)]
    content = "\n".join([",".join(FIELDS), *rows])
    (tmp_path / FILE).write_text(content)
    fields = [
        mlc.Field(
            id=f"numbers/{name}",
            name=name,
            data_types=kind,
            source=mlc.Source(file_object=FILE, extract=mlc.Extract(column=name)),
        )
        for name, kind in FIELDS.items()
    ]
    described = mlc.Metadata(
        name="numbers",
        url="https://example.org/numbers",
        distribution=[
            mlc.FileObject(
                id=FILE,
                name=FILE,
                content_url=FILE,
                encoding_formats=["text/csv"],
                sha256=hashlib.sha256(content.encode()).hexdigest(),
            )
        ],
        record_sets=[mlc.RecordSet(id="numbers", name="numbers", fields=fields)],
    )
    path = tmp_path / "metadata.json"
    path.write_text(json.dumps(described.to_json()))
    return path


def test_records(metadata: Path) -> None:
    expected = list(mlc.Dataset(metadata).records("numbers"))
    assert len(expected) == 200

    def check(actual):  # type: ignore[no-untyped-def]  # Beam reads annotations as type hints
        found = [record for _, record in sorted(actual, key=lambda pair: pair[0])]
        if found != expected:
            raise BeamAssertException(f"{found[:3]}, not {expected[:3]}")

    with TestPipeline() as pipeline:
        read = mlc.ReadFromCroissant(jsonld=metadata, record_set="numbers")
        assert_that(pipeline | read, check)
