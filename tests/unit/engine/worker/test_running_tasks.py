"""What is kept for a job goes when the job ends, and not under a task that runs."""

import threading

from beam_spark_runner.engine.worker.running_tasks import RunningTasks


def test_a_job_without_a_task_is_released_at_its_end() -> None:
    gone: list[str] = []
    tasks = RunningTasks(gone.append)
    with tasks.working_for("job", lambda: None):
        pass
    assert gone == []
    assert tasks.end_job("job", 0)
    assert gone == ["job"]


def test_a_task_is_abandoned_and_waited_for() -> None:
    gone: list[str] = []
    tasks = RunningTasks(gone.append)
    abandoned = threading.Event()

    def run() -> None:
        with tasks.working_for("job", abandoned.set):
            began.set()
            assert abandoned.wait(60)
            assert gone == []

    began = threading.Event()
    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(60)
    with tasks.working_for("another job", lambda: gone.append("wrong one")):
        assert tasks.end_job("job", 60)
    thread.join(60)
    assert set(gone) == {"job"}


def test_a_task_that_does_not_end_in_time_lets_go_itself() -> None:
    gone: list[str] = []
    tasks = RunningTasks(gone.append)
    with tasks.working_for("job", lambda: None):
        assert not tasks.end_job("job", 0.01)
        assert gone == []
    assert gone == ["job"]


def test_a_task_that_begins_after_the_end_lets_go() -> None:
    gone: list[str] = []
    tasks = RunningTasks(gone.append)
    assert tasks.end_job("job", 0)
    with tasks.working_for("job", lambda: None):
        pass
    assert gone == ["job", "job"]
