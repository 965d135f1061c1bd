"""What a task reports of its work, for people."""

from types import SimpleNamespace
from typing import Any

import pytest

from beam_spark_runner.engine.rows.cursor import LargestKey
from beam_spark_runner.engine.task.work_of_task import WorkOfTask


def cursor(rows: int, of_key: int) -> Any:
    return SimpleNamespace(rows=rows, largest=LargestKey(7, b"k", of_key))


def test_a_task_without_rows_has_no_work() -> None:
    work = WorkOfTask(2, 5).proto()
    assert (work.level, work.partition, work.rows, work.spent_us) == (2, 5, 0, 0)
    assert not work.HasField("largest")


def test_the_key_is_named_while_it_runs_and_afterwards() -> None:
    work = WorkOfTask(2, 5)
    work.begin(cursor(1_000, 900))
    assert work.largest() == LargestKey(7, b"k", 900)
    running = work.proto("Sum", "'k'")
    assert (running.largest.step, running.largest.text, running.largest.rows) == ("Sum", "'k'", 900)
    assert not running.is_done
    work.end("Sum", "'k'")
    work.finish()
    done = work.proto()
    assert done.largest == running.largest
    assert done.is_done


@pytest.mark.parametrize(("of_key", "text"), [(900, ""), (100, "'k'")], ids=["no step", "few rows"])
def test_a_key_by_which_no_step_groups_or_that_has_few_rows_is_not_named(
    of_key: int, text: str
) -> None:
    work = WorkOfTask(2, 5)
    work.begin(cursor(1_000, of_key))
    work.end("Sum", text)
    assert not work.proto().HasField("largest")
