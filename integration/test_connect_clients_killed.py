"""Batch jobs whose program is a client of a Spark Connect server, and is killed."""

import signal
from pathlib import Path

import pytest

from tests.cli.programs import Ended, Program

pytestmark = [pytest.mark.connect, pytest.mark.timeout(900)]

ELEMENTS = 4
_SCRIPT = """
    from pathlib import Path

    class Waiting(beam.DoFn):
        def __init__(self, folder):
            self._folder = folder

        def process(self, element):
            import time
            begun, may_end, is_quick = (Path(self._folder, x) for x in ("begun", "end", "quick"))
            with begun.open("a") as notes:
                notes.write(f"{{element}}\\n")
            waits = not is_quick.exists()
            while waits and not may_end.exists():
                time.sleep(0.05)
            yield str(element)

    with beam.Pipeline(argv=OPTIONS) as p:
        numbers = p | beam.Create(range({elements})) | beam.Reshuffle()
        lines = numbers | "wait" >> beam.ParDo(Waiting({folder!r}))
        lines | beam.io.WriteToText({folder!r} + "/lines")
    """


class Clients:
    """Programs that run one job, one after another."""

    def __init__(self, folder: Path, server: str) -> None:
        self.folder, self._server = folder, server
        self.job = folder / "job"
        self._count = 0

    def start(self, *flags: str) -> Program:
        self._count += 1
        folder = self.folder / f"client-{self._count}"
        folder.mkdir()
        return Program(
            folder,
            _SCRIPT.format(elements=ELEMENTS, folder=str(self.folder)),
            f"--spark_master_url={self._server}",
            "--parallelism=2",
            "--batch_job_recovery",
            f"--checkpoint_dir={self.job}",
            *flags,
        )

    def begun(self) -> list[str]:
        """Return which elements were begun, once for each time."""
        notes = self.folder / "begun"
        return sorted(notes.read_text().split()) if notes.exists() else []

    def check(self, ended: Ended) -> None:
        assert ended.code == 0, ended.err
        files = self.folder.glob("lines*")
        lines = sorted(line for file in files for line in file.read_text().split())
        assert lines == sorted(map(str, range(ELEMENTS)))
        assert list(self.job.iterdir()) == []


@pytest.fixture
def clients(connect_server: str, tmp_path: Path) -> Clients:
    """Clients of a server, of which the first one was killed while both slots were busy."""
    clients = Clients(tmp_path, connect_server)
    first = clients.start()
    assert first.wait_until(lambda: len(clients.begun()) == 2)
    first.send(signal.SIGKILL)
    first.end(60, jvm_was_killed=True)
    return clients


def test_the_next_client_keeps_what_the_server_finishes(clients: Clients) -> None:
    second = clients.start("--previous_worker_recovery_timeout=300")
    assert second.wait_until(lambda: any(clients.job.glob("job-*/000000000002.fence")))
    (clients.folder / "end").touch()
    clients.check(second.end(300))
    assert clients.begun() == sorted(map(str, range(ELEMENTS)))


def test_the_next_client_ends_what_the_server_does_not_finish(clients: Clients) -> None:
    (clients.folder / "quick").touch()  # tasks that have begun do not look for it any more
    clients.check(clients.start("--previous_worker_recovery_timeout=1").end(300))
    assert len(clients.begun()) == ELEMENTS + 2
