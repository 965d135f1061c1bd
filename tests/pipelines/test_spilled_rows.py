"""Pipelines in this process whose rows between two steps do not fit in the memory for them."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.pvalue import AsDict, AsList, AsSingleton
from apache_beam.transforms.window import FixedWindows, TimestampCombiner, TimestampedValue

from beam_spark_runner import SparkPortableRunner
from beam_spark_runner.core.errors import RowStorageError
from beam_spark_runner.state.spill import SpillFile
from tests.harvest import SPREAD, harvest_on
from tests.pipelines.test_self_checkpoints import Defer
from tests.unit.harness.values.spill_files import open_spill_files

IN_PROCESS = ("--spark_master_url=in-process", "--progress=off")
NO_MEMORY = "--group_memory_bytes=1"
COUNT = 2_000


def everything(p: beam.Pipeline) -> dict[str, Any]:
    """Build steps of all kinds that other steps get rows from."""
    numbers = p | beam.Create(range(COUNT), reshuffle=False)
    keyed = numbers | "keyed" >> beam.Map(lambda number: (number % 7, number))
    timed = keyed | beam.Map(lambda pair: TimestampedValue(pair, pair[1]))
    earliest = timed | beam.WindowInto(
        FixedWindows(500), timestamp_combiner=TimestampCombiner.OUTPUT_AT_EARLIEST
    )
    sums = keyed | "sums" >> beam.CombinePerKey(sum)
    large = p | "large" >> beam.Create([b"x" * 600_000]) | beam.Map(lambda value: (1, value))
    steps = p | "steps" >> beam.Create([(str(name), 1 + name % 3) for name in range(10)])
    return {
        "grouped": keyed | beam.GroupByKey() | beam.MapTuple(lambda key, all_: (key, list(all_))),
        "windows": earliest | "in windows" >> beam.GroupByKey() | beam.MapTuple(sorted_values),
        "combined": sums,
        "counted": numbers | beam.combiners.Count.Globally(),
        "spread": numbers | beam.Reshuffle(),
        "both": (numbers, sums | beam.Keys()) | beam.Flatten() | "again" >> beam.Reshuffle(),
        "one by one": numbers
        | "with side inputs"
        >> beam.Map(
            lambda number, one, all_, by_key: (number, one, len(all_), by_key[number % 7]),
            AsSingleton(numbers | "most" >> beam.CombineGlobally(max)),
            AsList(numbers),
            AsDict(sums),
        ),
        "rounds": steps | beam.ParDo(Defer()) | beam.MapTuple(lambda name, place, _: (name, place)),
        "joined": {"few": sums, "many": keyed} | beam.CoGroupByKey() | beam.MapTuple(lengths),
        "long values": large | "long" >> beam.GroupByKey() | beam.MapTuple(total_length),
    }


def sorted_values(key: int, values: Any) -> tuple[int, list[int]]:
    return key, sorted(values)


def lengths(key: int, found: Any) -> tuple[int, int, int]:
    return key, len(list(found["few"])), len(list(found["many"]))


def total_length(key: int, values: Any) -> tuple[int, int]:
    return key, sum(map(len, values))


@pytest.mark.parametrize("flags", [(), (SPREAD,)], ids=["begins in one task", "spread"])
def test_the_results_are_the_same(flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = 0
    append = SpillFile.append

    def counted(file: SpillFile, piece: Any) -> int:
        nonlocal pieces
        pieces += 1
        return append(file, piece)

    monkeypatch.setattr(SpillFile, "append", counted)
    runner = SparkPortableRunner()
    expected = harvest_on(runner, everything, *IN_PROCESS, *flags)
    assert pieces == 0
    found = harvest_on(runner, everything, *IN_PROCESS, *flags, NO_MEMORY)
    # How many depends on how far the first task comes in its time.
    assert pieces
    assert set(found.kept) == set(expected.kept)
    for label in expected.kept:
        assert found.timed(label) == expected.timed(label), label
    assert expected["both"] == sorted([*range(COUNT), *range(7)])


class Sampled(beam.DoFn):  # type: ignore[misc]
    """Notes how many bytes Arrow holds in this process."""

    most_bytes = 0
    held_by_others = 0

    def process(self, element: Any) -> Iterator[Any]:
        Sampled.most_bytes = max(Sampled.most_bytes, pa.total_allocated_bytes())
        yield element


def many(part: int) -> Iterator[tuple[int, bytes]]:
    for number in range(3_000):
        yield number * 17 % 1_001, b"%d" % part * 2_000


def much(p: beam.Pipeline) -> dict[str, Any]:
    """Group and spread 120 MB, and read its keys as a side input."""
    parts = p | beam.Create(range(10, 20))
    pairs = parts | beam.FlatMap(many) | "while written" >> beam.ParDo(Sampled())
    groups = pairs | beam.GroupByKey() | "while read" >> beam.ParDo(Sampled())
    counts = groups | beam.MapTuple(lambda _, values: sum(1 for _ in values))
    large = pairs | beam.Reshuffle() | "while spread" >> beam.ParDo(Sampled())
    return {
        "counted": counts | beam.CombineGlobally(sum),
        "read": parts | beam.Map(lambda part, pairs: len(pairs), AsList(large | beam.Keys())),
    }


def test_rows_are_not_in_memory_all_at_once() -> None:
    before = pa.total_allocated_bytes()
    Sampled.most_bytes = 0
    found = harvest_on(SparkPortableRunner(), much, *IN_PROCESS, f"--group_memory_bytes={3 << 20}")
    assert found["counted"] == [30_000]
    assert found["read"] == [30_000] * 10
    # Some batches of 4 MB are between the threads of a task.
    assert Sampled.most_bytes - before < 36 << 20


@pytest.mark.parametrize("flags", [(), (SPREAD,)], ids=["begins in one task", "spread"])
def test_a_full_disk_is_an_error_that_helps(
    flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(descriptor: int, piece: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    flags = (*IN_PROCESS, *flags, NO_MEMORY, f"--temp_location={tmp_path}")
    with pytest.raises(RowStorageError) as caught:
        harvest_on(SparkPortableRunner(), much, *flags)
    for part in ("No space left", f"in {tmp_path}/beam-", "--group_memory_bytes"):
        assert part in str(caught.value)
    assert "beam-bundle" not in [each.name for each in threading.enumerate()]


def fail(element: Any) -> None:
    raise ValueError("on purpose")


def test_nothing_is_left_after_a_failure(tmp_path: Path) -> None:
    def failing(p: beam.Pipeline) -> dict[str, Any]:
        return {"groups": everything(p)["grouped"] | beam.Map(fail)}

    before = open_spill_files()
    flags = (*IN_PROCESS, NO_MEMORY, SPREAD, f"--temp_location={tmp_path}")
    with pytest.raises(ValueError, match="on purpose"):
        harvest_on(SparkPortableRunner(), failing, *flags)
    assert list(tmp_path.iterdir()) == []
    assert not open_spill_files() - before  # those of earlier tests may be closed meanwhile


def test_nothing_is_left_after_control_c(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import os, signal, time, apache_beam as beam\n"
        # A shell starts what runs in its background with SIGINT ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def interrupt(_):\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    while True:\n"
        "        time.sleep(0.01)\n"
        "with beam.Pipeline(argv=['--runner=SparkPortableRunner', '--progress=off',\n"
        "                         '--spark_master_url=in-process', '--group_memory_bytes=1',\n"
        f"                         '--temp_location={tmp_path}/temp']) as p:\n"
        "    (p | beam.Create(range(1000)) | beam.Map(lambda n: (n % 5, n)) | beam.GroupByKey()\n"
        "     | beam.Map(interrupt))\n"
    )
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode != 0
    assert "KeyboardInterrupt" in ended.stderr
    assert list((tmp_path / "temp").iterdir()) == []
