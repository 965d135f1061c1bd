"""Checkpoints that earlier versions of the runner have written."""

import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.harvest import Harvest
from tests.pipelines import stored_kinds

LIST = sorted(stored_kinds.OLDER.glob("*.tar.xz"))


@pytest.fixture(scope="module")
def expected(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Harvest:
    """Return what a run gives that continues from a checkpoint of this version."""
    folder = tmp_path_factory.mktemp("checkpoint")
    stored_kinds.stop(folder)
    return stored_kinds.run(folder)


@pytest.mark.parametrize("archive", LIST, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_a_stream_continues_from_an_older_checkpoint(
    spark_session: Any, expected: Harvest, archive: Path, tmp_path: Path
) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    found = stored_kinds.run(tmp_path / "checkpoint")
    assert _elements(found) == _elements(expected)
    assert all(found.kept.values())


def test_there_are_older_checkpoints_to_continue_from() -> None:
    assert LIST


def test_elements_from_before_the_stop_are_in_the_results(expected: Harvest) -> None:
    """Otherwise the checkpoint would have nothing of that kind. Only a reshuffle stores nothing."""
    reshuffled = "reshuffle in fixed"
    assert {numbers for _, numbers in expected[reshuffled]} == {(13,), (14,), (15,), (16,)}
    for label in expected.kept.keys() - {reshuffled}:
        assert any(0 < number <= 12 for _, some in expected[label] for number in some), label


def _elements(found: Harvest) -> dict[str, Counter[Any]]:
    return {
        label: Counter((each.value, each.timestamp.micros, str(each.window)) for each in kept)
        for label, kept in found.kept.items()
    }
