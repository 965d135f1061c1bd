"""What tasks that run tell of what they have deferred."""

from pathlib import Path

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.spark.pending import Pending, PendingFile, read_pending

POLL, READ = TransformId("poll"), TransformId("read")
LONG_US = 60_000_000


def test_tasks_are_added_up(tmp_path: Path) -> None:
    assert read_pending(str(tmp_path)) == {}
    one, other = (PendingFile(str(tmp_path), name) for name in ("one", "other"))
    one.tell({POLL: Pending(3, 700), READ: Pending(1, 10)}, 0)
    other.tell({POLL: Pending(2, 400)}, 0)
    assert read_pending(str(tmp_path)) == {POLL: Pending(5, 400), READ: Pending(1, 10)}
    one.close()
    assert read_pending(str(tmp_path)) == {POLL: Pending(2, 400)}
    other.close()
    assert read_pending(str(tmp_path)) == {}


def test_it_is_told_now_and_then_and_before_a_long_wait(tmp_path: Path) -> None:
    told = PendingFile(str(tmp_path), "task")
    told.tell({POLL: Pending(3, 0)}, 0)
    told.tell({POLL: Pending(2, 0)}, 1_000)
    assert read_pending(str(tmp_path))[POLL].number == 3
    told.tell({POLL: Pending(1, 0)}, LONG_US)
    assert read_pending(str(tmp_path))[POLL].number == 1


def test_without_a_folder_nothing_is_told(tmp_path: Path) -> None:
    told = PendingFile(None, "task")
    told.tell({POLL: Pending(3, 0)}, LONG_US)
    told.close()
    assert read_pending(None) == {}


def test_a_folder_that_has_gone_disturbs_nobody(tmp_path: Path) -> None:
    told = PendingFile(str(tmp_path / "gone"), "task")
    told.tell({POLL: Pending(3, 0)}, LONG_US)
    told.close()
    assert read_pending(str(tmp_path / "gone")) == {}


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    PendingFile(str(tmp_path), "task").tell({POLL: Pending(3, 0)}, 0)
    (tmp_path / "pending" / "half.json").write_text("{")
    assert read_pending(str(tmp_path)) == {POLL: Pending(3, 0)}
