"""What streaming pipelines commit, and how a run continues from it."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_stream import TestStream as Stream
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import GlobalWindows, TimestampedValue

from beam_spark_runner.core.errors import BundleFailedError
from tests.harvest import harvest
from tests.stateful import Number


def pairs(*times: int) -> list[TimestampedValue]:
    """Return pairs of a key and a number, which is also the second of its timestamp."""
    return [TimestampedValue(("a", time), time) for time in times]


def stream() -> Stream:
    return Stream().with_output_types(tuple[str, int])


def test_a_pipeline_whose_code_was_mended_continues(spark_session: Any, tmp_path: Path) -> None:
    """The first run fails in its fourth epoch; the second one has the state of the third."""
    flag = f"--checkpoint_dir={tmp_path / 'checkpoints'}"

    def wrong(pair: tuple[str, int]) -> tuple[str, int]:
        return pair[0], 1 // (5 - pair[1])

    def mended(pair: tuple[str, int]) -> tuple[str, int]:
        return pair

    def build(code: Callable[..., Any]) -> Callable[[beam.Pipeline], dict[str, Any]]:
        def build_it(p: beam.Pipeline) -> dict[str, Any]:
            events = stream().add_elements(pairs(1, 2)).advance_watermark_to(3)
            events.add_elements(pairs(4)).add_elements(pairs(5)).advance_watermark_to_infinity()
            check = beam.Map(code).with_output_types(tuple[str, int])
            return {"numbers": p | events | "Check" >> check | beam.ParDo(Number())}

        return build_it

    with pytest.raises(BundleFailedError) as raised:
        harvest(spark_session, build(wrong), flag)
    assert raised.value.step == "Check"
    assert str(raised.value).endswith(
        "ZeroDivisionError: integer division or modulo by zero [while running 'Check']\n"
        "Element: ('a', 5)\n"
    )
    assert harvest(spark_session, build(mended), flag)["numbers"] == [("a", 3)]
    assert harvest(spark_session, build(mended), flag)["numbers"] == []  # it is done


def test_a_checkpoint_folder_that_is_away_for_some_time(spark_session: Any, tmp_path: Path) -> None:
    """It comes back when the driver has noticed."""
    folder, away = tmp_path / "checkpoints", tmp_path / "away"
    failed: list[str] = []

    class ComesBack(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "trying again" in record.getMessage():
                failed.append(record.getMessage())
                away.rename(folder)

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream()
        for number in range(4):
            events.add_elements(pairs(number))

        def go_away(pair: tuple[str, int]) -> tuple[str, int]:
            if pair[1] == 2 and not (tmp_path / "gone").exists():
                (tmp_path / "gone").touch()
                folder.rename(away)
            return pair

        moved = beam.Map(go_away).with_output_types(tuple[str, int])
        numbers = p | events.advance_watermark_to_infinity() | moved | beam.ParDo(Number())
        return {"numbers": numbers}

    handler = ComesBack()
    logger = logging.getLogger("beam_spark_runner")
    logger.addHandler(handler)
    try:
        found = harvest(spark_session, build, f"--checkpoint_dir={folder}")
    finally:
        logger.removeHandler(handler)
    assert len(failed) == 1
    assert re.search("No such file.*checkpoints", failed[0])
    # What user code does to the outside happens at least once.
    assert set(found["numbers"]) == {("a", number) for number in range(4)}


def test_what_a_checkpoint_is_not_for(spark_session: Any, tmp_path: Path) -> None:
    """Each of these runs ends before it could take the pipeline over from the first one."""
    flags = (f"--checkpoint_dir={tmp_path}", "--parallelism=2")

    def build(name: str) -> Callable[[beam.Pipeline], dict[str, Any]]:
        def build_it(p: beam.Pipeline) -> dict[str, Any]:
            events = stream().add_elements(pairs(1)).advance_watermark_to_infinity()
            return {"numbers": p | events | name >> beam.ParDo(Number())}

        return build_it

    harvest(spark_session, build("Number"), *flags)
    for name, more, message in (
        ("Other", (), "step Number was removed, but has stored data .state next, "),
        ("Number", ("--restart=fresh",), "--restart: an earlier run has committed 2 epochs"),
        ("Number", ("--max_parallelism=64",), "--max_parallelism: it was 128 when the checkpoint"),
        ("Number", ("--parallelism=129",), "--parallelism: 129 is more than --max_parallelism"),
    ):
        with pytest.raises(RuntimeError, match=message):
            harvest(spark_session, build(name), *flags, *more)
    assert len(list(tmp_path.rglob("*.fence"))) == 1


@pytest.mark.rare
def test_what_old_epochs_have_written_goes(spark_session: Any, tmp_path: Path) -> None:
    """Each epoch changes shards and a side input."""
    flags = (f"--checkpoint_dir={tmp_path}", "--parallelism=1")

    def build(p: beam.Pipeline) -> dict[str, Any]:
        events = stream()
        for number in range(120):
            events.add_elements(pairs(number))
        always = beam.WindowInto(
            GlobalWindows(),
            trigger=Repeatedly(AfterCount(1)),
            accumulation_mode=AccumulationMode.DISCARDING,
        )
        numbers = p | events.advance_watermark_to_infinity()
        newest = beam.pvalue.AsList(numbers | always)
        look = beam.Map(lambda pair, some: (pair[0], len(some)), newest)
        seen = numbers | look.with_output_types(tuple[str, int])
        return {"numbers": seen | beam.ParDo(Number())}

    assert len(harvest(spark_session, build, *flags)["numbers"]) == 120
    names = [path.name for path in tmp_path.rglob("*")]
    assert sum(name.endswith(".manifest") for name in names) == 3
    assert sum(name.endswith(".view") for name in names) <= 4
    # Three stages store something, in shards of two levels or three.
    assert sum(name.endswith(".delta") for name in names) <= 3 * (10 + 3)
    assert len(names) < 3 * 13 + 10


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--restart=resume",), "--restart: nothing has been committed"),
        (("--checkpoint_dir=hdfs:///folder",), "--hdfs_host: must be given, since hdfs:///folder"),
        (("--checkpoint_dir=ftp://host/folder",), "--checkpoint_dir: ftp://host/folder is none of"),
    ],
)
def test_wrong_options(spark_session: Any, flags: tuple[str, ...], message: str) -> None:
    def build(p: beam.Pipeline) -> dict[str, Any]:
        return {"all": p | stream().advance_watermark_to_infinity()}

    with pytest.raises(Exception, match=message):
        harvest(spark_session, build, *flags)
