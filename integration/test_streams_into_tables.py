"""Streams into Delta and Iceberg whose driver is killed around the write of an epoch."""

import ast
import signal
from pathlib import Path
from typing import Any

import pytest

from integration.lakes import NEEDS_PACKAGES
from integration.stream_table_driver import IDS, MOMENTS
from tests.cli.programs import Ended, Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), NEEDS_PACKAGES]

_SCRIPT = """
    from integration.stream_table_driver import main
    main(OPTIONS[1:], {!r}, {!r}, {!r}, {!r}, {!r})
    """
_FOLDERS = {"delta": "numbers", "iceberg": "lake/db/numbers"}


class Stream:
    """A stream into a table.

    Args:
        folder: for all of it.
        kind: of the table.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder, self._home = folder, folder / "home"
        self._files = self._home / _FOLDERS[kind]
        self._target: dict[str, Any] = {"path": str(self._files), "format": kind}
        if (
            kind == "iceberg"
        ):  # each start has the same catalog of Hadoop; that of Delta has no Hive
            self._target = {"table": "lake.db.numbers", "format": kind}
        self._starts = 0

    def start(self, moment: str = "", nth: int = 0) -> Ended:
        """Run the program until it is killed, or done."""
        self._starts += 1
        folder = self._folder / f"start-{self._starts}"
        folder.mkdir()
        script = _SCRIPT.format(str(self._home), self._target, str(self._files), moment, nth)
        program = Program(
            folder,
            script,
            f"--checkpoint_dir={self._folder / 'checkpoints'}",
            "--batch_interval_millis=100",
            "--parallelism=2",
        )
        return program.end(600, jvm_was_killed=bool(moment))


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("kind", _FOLDERS)
def test_each_row_is_in_the_table_once(tmp_path: Path, kind: str, moment: str) -> None:
    """The first write creates the table, and the second one adds to it: a start dies in either."""
    stream = Stream(tmp_path, kind)
    for nth in (1, 2):
        killed = stream.start(moment, nth)
        assert killed.code == -signal.SIGKILL, killed.err
    ended = stream.start()
    assert ended.code == 0, ended.err
    assert ast.literal_eval(ended.out.splitlines()[-1]) == IDS
