"""Programs that write Spark tables, and are killed around the write, until they are done."""

import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from integration.table_driver import MOMENTS
from tests.cli.programs import Ended, Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

OLD, NEW = [100, 101], list(range(40))
_SCRIPT = """
    from integration.table_driver import main
    main(OPTIONS, {!r}, {!r}, {!r}, {!r}, {!r})
    """


class Table:
    """A table in files, and the job that writes it.

    Args:
        folder: For all of it.
        place: "path", or "table" in a Hive.
        mode: Of the write.
    """

    def __init__(self, folder: Path, place: str, mode: str) -> None:
        self._folder, self._mode = folder, mode
        self._starts = 0
        self.job, self.out = folder / "job", folder / "out"
        self.out.mkdir()
        warehouse = folder / "warehouse"
        self.files = warehouse / "numbers"
        self._target: dict[str, Any] = {"path": str(self.files)}
        self._environment: dict[str, str] = {}
        if place == "table":
            self._target = {"table": "numbers", "format": "parquet"}
            derby = f"jdbc:derby:;databaseName={folder}/metastore;create=true"
            (folder / "spark-defaults.conf").write_text(
                "spark.sql.catalogImplementation hive\n"
                f"spark.sql.warehouse.dir {warehouse}\n"
                f"spark.hadoop.javax.jdo.option.ConnectionURL {derby}\n"
            )
            self._environment["SPARK_CONF_DIR"] = str(folder)

    def start(self, moment: str | None, ids: list[int], **target: str) -> Ended:
        """Run the program until it is killed, or done."""
        self._starts += 1
        folder = self._folder / f"start-{self._starts}"
        folder.mkdir()
        arguments = {**self._target, "mode": self._mode, **target}
        script = _SCRIPT.format(ids, arguments, str(self.files), str(self.out), moment)
        program = Program(
            folder,
            script,
            "--spark_master_url=local[2]",
            "--spark_class_archive=off",
            "--batch_job_recovery",
            f"--checkpoint_dir={self.job}",
            "--parallelism=4",
            **self._environment,
        )
        leaves_files = moment is not None or "table" in self._target  # Hive leaves empty folders
        return program.end(600, jvm_was_killed=leaves_files)

    def make(self) -> None:
        """Make the table, with the old rows."""
        ended = self.start(None, OLD, mode="error")
        assert ended.code == 0, ended.err
        for file in self.out.iterdir():
            file.unlink()

    def ids(self) -> Counter[int]:
        """Return what readers of its files find."""
        visible = [file for file in self.files.glob("*.parquet") if file.is_file()]
        return Counter(id_ for file in visible for id_ in pq.read_table(file)["id"].to_pylist())

    def check(self, ended: Ended, expected: list[int]) -> None:
        """Check what all starts have made."""
        assert ended.code == 0, ended.err
        assert self.ids() == Counter(expected)
        assert ended.out.splitlines()[-1] == str({"rows": len(NEW)})
        lines = [line for file in self.out.iterdir() for line in file.read_text().splitlines()]
        assert lines == [f"True {len(NEW)}"]
        assert not list(self.job.iterdir())
        assert not list(self.files.glob("_temporary"))


@pytest.mark.parametrize("place", ["path", "table"])
@pytest.mark.parametrize("mode", ["append", "overwrite", "error"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_table_is_written_once(tmp_path: Path, place: str, mode: str, moment: str) -> None:
    table = Table(tmp_path, place, mode)
    if mode != "error":
        table.make()
    killed = table.start(moment, NEW)
    assert killed.code == -signal.SIGKILL, killed.err
    has_rows = NEW[0] in table.ids()
    again = table.start(None, NEW)
    expected = [*OLD, *NEW] if mode == "append" else NEW
    if mode == "append" and moment != "ended" and has_rows:
        assert moment != "begun"
        assert again.code
        assert "UnknownTableWriteError: table/Write appends 40 rows to" in again.err
        assert table.ids() <= Counter(expected)
    else:
        table.check(again, expected)
