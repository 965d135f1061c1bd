"""Sources with readers and checkpoint marks: Beam's ``UnboundedSource``, as a splittable DoFn."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows

from tests.harvest import RARE_HARNESSES, REUSED_PROCESS, harvest
from tests.numbers_source import Log, Numbers, pairs
from tests.stateful import Number

QUICK = "--batch_interval_millis=50"


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Return where readers note what happens, next to a checkpoint folder."""
    (tmp_path / "notes").mkdir()
    return Log(folder=str(tmp_path / "notes"), checkpoints=str(tmp_path / "checkpoints"))


@pytest.mark.parametrize("flags", RARE_HARNESSES)
def test_splits_marks_watermarks_and_finalization(
    spark_session: Any, log: Log, flags: tuple[str, ...]
) -> None:
    source = Numbers(name="s", end=24, at_once=5, splits=3, log=log)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        numbers = pairs(source)(p)
        groups = numbers | beam.WindowInto(FixedWindows(10)) | beam.GroupByKey()
        return {
            "numbers": numbers,
            "groups": groups | beam.MapTuple(lambda key, some: (key, sorted(some))),
        }

    found = harvest(spark_session, build, QUICK, f"--checkpoint_dir={log.checkpoints}", *flags)
    names = [f"s{number}" for number in range(3)]
    assert found["numbers"] == [(name, n) for name in names for n in range(24)]
    assert found["groups"] == [
        (name, list(range(start, min(start + 10, 24)))) for name in names for start in (0, 10, 20)
    ]
    finalized = log.finalized()
    # Each mark only when the epoch has been committed in which it was cut; the last one, too.
    assert all(each.committed > each.committed_at_cut for each in finalized), finalized
    for name in names:
        marks = [each.last for each in finalized if each.name == name]
        assert marks == sorted(set(marks))
        assert len(marks) > 4
        assert marks[-1] == 23


@pytest.mark.parametrize(
    ("flags", "most_open"),
    [
        pytest.param((), 2, id="embedded"),  # one in each of two workers, at most
        # Beam's SDK keeps them by instance of its DoFn, of which each bundle has another one until
        # its callbacks have run.
        pytest.param(REUSED_PROCESS, 200, id="process", marks=pytest.mark.rare),
    ],
)
def test_a_failed_run_continues_from_the_mark_that_was_committed(
    spark_session: Any, log: Log, tmp_path: Path, flags: tuple[str, ...], most_open: int
) -> None:
    """Its many bundles share their readers; the last number comes with the end of time."""
    options = (QUICK, f"--checkpoint_dir={log.checkpoints}", *flags)
    source = Numbers(name="s", end=60, at_once=20, ends_with_its_last=True, log=log)
    stop = tmp_path / "stop"
    stop.touch()

    def build(p: beam.Pipeline) -> dict[str, Any]:
        def check(pair: tuple[str, int]) -> tuple[str, int]:
            if pair[1] == 43 and stop.exists():
                raise RuntimeError("stopped")
            return pair

        checked = beam.Map(check).with_output_types(tuple[str, int])
        return {"numbers": pairs(source, most_in_bundle=3)(p) | checked | beam.ParDo(Number())}

    with pytest.raises(RuntimeError, match="stopped"):
        harvest(spark_session, build, *options)
    covered = max(each.last for each in log.finalized())
    stop.unlink()
    seen = [n for _, n in harvest(spark_session, build, *options)["numbers"]]
    assert seen[0] > covered  # what is finalized does not come again
    assert seen == list(range(seen[0], 60))  # none is lost, none is counted twice
    assert ("s", seen[0]) in log.begun()  # a reader was made from the mark
    finalized = log.finalized()
    assert finalized[-1].last == 59
    assert all(each.committed > each.committed_at_cut for each in finalized)
    assert log.still_open() <= most_open
    assert harvest(spark_session, build, *options)["numbers"] == []  # it is done
