"""Streams on YARN whose checkpoints are on HDFS: they continue, and each word is counted once."""

import signal
from pathlib import Path

import pytest

from integration.arriving_words import ArrivingWords
from integration.yarn.applications import Running, Submitter
from integration.yarn.nodes import Yarn
from integration.yarn.patience import wait_until
from integration.yarn.processes import DRIVER, EXECUTOR, jvms, kill

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

PROGRAM = Path(__file__).parents[2] / "examples" / "streaming" / "word_counts.py"
CONTINUES = {
    # How often YARN starts a driver that has failed, in each interval.
    "spark.yarn.maxAppAttempts": "2",
    "spark.yarn.am.attemptFailuresValidityInterval": "1s",
}


class Words(ArrivingWords):
    """A stream that counts words, the folder of its input, and that of its output."""

    def __init__(self, yarn: Yarn, name: str) -> None:
        super().__init__(yarn.place(f"words-of-{name}"), yarn.place(f"counts-of-{name}"))
        self.flags = (
            *self.flags,
            f"--checkpoint_dir={yarn.folder(name)}",
            f"--temp_location={yarn.folder('temp')}",
            *yarn.checkpoint_flags,
        )

    def wait(self, running: Running) -> None:
        """Wait until all words are counted that were added."""

        def are_counted() -> bool:
            assert running.process.poll() is None, running.output[-8000:]
            return self.are_counted()

        wait_until(are_counted, "the counts of all words")


def test_a_driver_outside_of_yarn_is_killed(submitter: Submitter, yarn: Yarn) -> None:
    """In client mode, the same command continues; SIGTERM drains."""
    words = Words(yarn, "client")
    flags = [*words.flags, "--drain_on_sigterm"]
    words.add()
    running = submitter.python(str(PROGRAM), *flags)
    words.wait(running)
    application = running.application()
    kill(running.process.pid)
    wait_until(lambda: yarn.application(application)["state"] != "RUNNING", "the application's end")
    wait_until(lambda: not yarn.files("/user"), "the end of what was sent to containers")
    words.add()
    running = submitter.python(str(PROGRAM), *flags, "--restart=resume")
    words.wait(running)
    running.process.send_signal(signal.SIGTERM)
    assert running.done().status == 0, running.output[-8000:]
    words.check()


def test_containers_are_killed(submitter: Submitter, yarn: Yarn) -> None:
    """In cluster mode, YARN starts the driver again, which continues by itself; again and again.

    YARN's own command ends the application, and a start with ``--drain`` ends the stream.
    """
    words = Words(yarn, "cluster")
    words.add()
    running = submitter.spark_submit("cluster", PROGRAM, *words.flags, conf=CONTINUES)
    words.wait(running)
    application = running.application()
    for main_class, attempts in ((EXECUTOR, 1), (DRIVER, 2), (DRIVER, 3)):
        killed = min(jvms(main_class, application))
        kill(killed)
        words.add()
        words.wait(running)
        assert killed not in jvms(main_class, application)
        assert yarn.attempts(application) == attempts
    yarn.kill(application)
    assert running.done().status == 1
    assert yarn.application(application)["finalStatus"] == "KILLED"
    words.add()
    ended = submitter.spark_submit("cluster", PROGRAM, *words.flags, "--drain").done()
    assert ended.status == 0, ended.output[-8000:]
    words.check()
    assert yarn.files("/beam/temp") == []
