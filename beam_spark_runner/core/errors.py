"""The errors that this runner raises on purpose.

All of them take their fields as arguments and pass them to ``Exception``, so
that they can be pickled between an executor and the driver.
"""

import re
from collections.abc import Sequence

from typing_extensions import override

from beam_spark_runner.core.raised import Raised

SAVEPOINT_ARGUMENT = "savepoint(path)"
"""Stands for the name of an option in errors of ``SparkPipelineResult.savepoint``."""


class RunnerError(RuntimeError):
    """Base of all errors of this runner.

    It is a RuntimeError, as Beam's own runners raise for a failed pipeline.
    """


class OptionsError(RunnerError):
    """A pipeline option is wrong, or conflicts with another one.

    Attributes:
        option: The name of the option; or ``SAVEPOINT_ARGUMENT``.
        problem: The rest of the message.
    """

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(option, problem)
        self.option, self.problem = option, problem

    @override
    def __str__(self) -> str:
        prefix = "" if self.option == SAVEPOINT_ARGUMENT else "--"
        return f"{prefix}{self.option}: {self.problem}"


class StagingError(RunnerError):
    """A package or file that the pipeline needs is not available where the program runs."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    @override
    def __str__(self) -> str:
        return f"the packages of this pipeline cannot be staged: {self.problem}"


class PipelineError(RunnerError):
    """Something is wrong with the pipeline itself."""


class InvalidPipelineError(PipelineError):
    """The pipeline is not valid Beam."""

    def __init__(self, problem: str, where: str) -> None:
        super().__init__(problem, where)
        self.problem, self.where = problem, where

    @override
    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


class UnsupportedFeatureError(PipelineError):
    """The pipeline is legal Beam, but this runner cannot run it (yet).

    Args:
        feature: The unsupported feature.
        where: The name of the step.
        instead: What the pipeline may use instead; empty: nothing.
    """

    def __init__(self, feature: str, where: str, instead: str = "") -> None:
        super().__init__(feature, where, instead)
        self.feature, self.where, self.instead = feature, where, instead

    @override
    def __str__(self) -> str:
        text = f"{self.where}: {self.feature} is not supported by SparkPortableRunner"
        return f"{text}; use {self.instead}" if self.instead else text


class PipelineRefusedError(PipelineError):
    """All problems that validation has found, so that one run shows all of them."""

    def __init__(self, problems: Sequence[PipelineError]) -> None:
        super().__init__(tuple(problems))
        self.problems = tuple(problems)

    @override
    def __str__(self) -> str:
        lines = "\n".join(f"  - {problem}" for problem in self.problems)
        return f"the pipeline cannot run ({len(self.problems)} problem(s)):\n{lines}"


class TableError(PipelineError):
    """A Spark table cannot be read or written as the pipeline specifies."""

    def __init__(self, problem: str, where: str) -> None:
        super().__init__(problem, where)
        self.problem, self.where = problem, where

    @override
    def __str__(self) -> str:
        return f"{self.where}: {self.problem}" if self.where else self.problem


class SparkSetupError(RunnerError):
    """No usable Spark: something is wrong with Java, the master, or the session."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem, remedy)
        self.problem, self.remedy = problem, remedy

    @override
    def __str__(self) -> str:
        return f"{self.problem}\n{self.remedy}"


class ExecutorMismatchError(SparkSetupError):
    """An executor's Python, Beam or copy of this package is missing or not the driver's."""


class SparkJobError(RunnerError):
    """Spark failed for a reason outside the pipeline: disk, memory, lost executors."""

    def __init__(self, segment: str, reason: str) -> None:
        super().__init__(segment, reason)
        self.segment, self.reason = segment, reason

    @override
    def __str__(self) -> str:
        return f"Spark failed in {self.segment}: {self.reason}"


class JobServerLostError(RunnerError):
    """A job server no longer answers its client.

    Args:
        endpoint: The endpoint of the server.
        job_id: The id of the job.
        reason: Why the server does not answer.
        advice: What becomes of the job, if the server stores it. "": it does not.
    """

    def __init__(self, endpoint: str, job_id: str, reason: str, advice: str = "") -> None:
        super().__init__(endpoint, job_id, reason, advice)
        self.endpoint, self.job_id, self.reason = endpoint, job_id, reason
        self.advice = advice

    @override
    def __str__(self) -> str:
        advice = self.advice or (
            f"If it has ended, so has job {self.job_id}; start the server and submit the pipeline "
            "again"
        )
        return f"the job server at {self.endpoint} no longer answers ({self.reason}). {advice}"


class JobServerRefusedError(RunnerError):
    """A job server refuses a request of its client, or does not support it.

    Args:
        endpoint: The endpoint of the server.
        reason: The server's own reason, or what it does not support.
    """

    def __init__(self, endpoint: str, reason: str) -> None:
        super().__init__(endpoint, reason)
        self.endpoint, self.reason = endpoint, reason

    @override
    def __str__(self) -> str:
        return f"the job server at {self.endpoint} refuses: {self.reason}"


class StoredDataError(RunnerError):
    """Data that the runner stores cannot be read or written: no step is to blame."""

    _tagged_with_step = True  # so that Beam raises it unchanged, also from within user code


class CheckpointStorageError(StoredDataError):
    """A disk or folder that a pipeline commits to is full, unavailable, or broken.

    Args:
        place: The file or folder.
        problem: What is wrong with it.
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place, self.problem = place, problem

    @override
    def __str__(self) -> str:
        return f"the checkpoint cannot be read or written at {self.place}: {self.problem}"


_LOST_ROWS = re.compile(
    r"LostRowsError: stored rows of Spark job (?P<run>\d+) cannot be read: (?P<problem>.*)"
)


class LostRowsError(StoredDataError):
    """Rows that an earlier Spark job has stored are missing or damaged: they must be made again.

    Args:
        run: The number of that Spark job.
        problem: Which file it is, and what is wrong with it.
    """

    def __init__(self, run: int, problem: str) -> None:
        super().__init__(run, problem)
        self.run, self.problem = run, problem

    @classmethod
    def found_in(cls, text: str) -> "LostRowsError | None":
        """Return the error in the text of one of Spark's, which includes what tasks raise."""
        found = _LOST_ROWS.search(text)
        return None if found is None else cls(int(found["run"]), found["problem"])

    @override
    def __str__(self) -> str:
        return f"stored rows of Spark job {self.run} cannot be read: {self.problem}"


_OUTPUT_STORAGE = re.compile(
    r"OutputStorageError: the output of a task cannot be stored or read at (?P<place>\S+): "
    r"(?P<problem>.*)"
)


class OutputStorageError(CheckpointStorageError):
    """The folder to which the tasks of a job store their output is full, unavailable, or broken."""

    @classmethod
    def found_in(cls, text: str) -> "OutputStorageError | None":
        """Return the error in the text of one of Spark's, which includes what tasks raise."""
        found = _OUTPUT_STORAGE.search(text)
        return None if found is None else cls(found["place"], found["problem"])

    @override
    def __str__(self) -> str:
        return f"the output of a task cannot be stored or read at {self.place}: {self.problem}"


class RowStorageError(StoredDataError):
    """Rows between the tasks of a pipeline that runs in its program cannot be kept on its disk.

    Args:
        folder: The temporary folder of the job.
        problem: What is wrong with it.
    """

    def __init__(self, folder: str, problem: str) -> None:
        super().__init__(folder, problem)
        self.folder, self.problem = folder, problem

    @override
    def __str__(self) -> str:
        return (
            f"rows between two steps cannot be stored in {self.folder}: {self.problem}. They are "
            "stored there if they take more memory than --group_memory_bytes; --temp_location "
            "names another folder"
        )


class EventServiceError(RunnerError):
    """The service that sends the events of a TestStream cannot be reached, or has failed.

    Args:
        step: The name of the TestStream.
        url: The URL of the service.
        reason: Why the call failed.
    """

    def __init__(self, step: str, url: str, reason: str) -> None:
        super().__init__(step, url, reason)
        self.step, self.url, self.reason = step, url, reason

    @override
    def __str__(self) -> str:
        return f"{self.step}: the TestStreamService at {self.url} sends no events: {self.reason}"


class HarnessError(RunnerError):
    """An SDK harness, or user code in it, failed."""


class BundleFailedError(HarnessError):
    """User code, or a coder, raised while a bundle ran.

    Args:
        step: The full name of the transform.
        cause: The last line of the user's traceback.
        traceback_text: The traceback, as the SDK has rendered it.
        raised: The class of the exception, and what else is known of it. None: nothing is.
    """

    def __init__(
        self, step: str, cause: str, traceback_text: str, raised: Raised | None = None
    ) -> None:
        super().__init__(step, cause, traceback_text)
        self.step, self.cause, self.traceback_text = step, cause, traceback_text
        self.raised = raised

    @override
    def __str__(self) -> str:
        text = f"{self.step}: {self.cause}"
        return f"{text}\n\n{self.traceback_text}" if self.traceback_text else text


_STUCK = re.compile(
    r"StuckBundleError: (?P<step>.+): its code has made no progress for (?P<lasted_s>\d+) s "
    r"\(--stuck_bundle_timeout\)\. Its stack:\n(?P<stack>.*?)\n(?:\n|={30}|\Z)",
    re.DOTALL,
)


class StuckBundleError(HarnessError):
    """User code has made no progress for as long as ``--stuck_bundle_timeout`` allows.

    Args:
        step: The full name of the transform; several, if it is not known which.
        lasted_s: The time without progress, in whole seconds.
        stack: The stack of the user code, as Python or the SDK harness renders it.
    """

    def __init__(self, step: str, lasted_s: int, stack: str) -> None:
        super().__init__(step, lasted_s, stack)
        self.step, self.lasted_s, self.stack = step, lasted_s, stack

    @classmethod
    def found_in(cls, text: str) -> "StuckBundleError | None":
        """Return the error in the text of one of Spark's, which includes what tasks raise."""
        match = _STUCK.search(text)
        return None if match is None else cls(match["step"], int(match["lasted_s"]), match["stack"])

    @override
    def __str__(self) -> str:
        return (
            f"{self.step}: its code has made no progress for {self.lasted_s} s "
            f"(--stuck_bundle_timeout). Its stack:\n{self.stack.rstrip()}\n"
        )


class FnApiProtocolError(HarnessError):
    """An SDK harness violated the Fn API."""


class HarnessStreamError(HarnessError):
    """The runner could not store what an SDK harness sent, for example on a full disk."""


class LostHarnessError(HarnessError):
    """An SDK harness in another process did not start, or ended.

    Args:
        problem: What happened, and to which harness.
        output: The last lines that the harness wrote to stdout and stderr; may be empty.
    """

    def __init__(self, problem: str, output: str = "") -> None:
        super().__init__(problem, output)
        self.problem, self.output = problem, output

    @override
    def __str__(self) -> str:
        if not self.output:
            return self.problem
        return f"{self.problem}\nThe last lines of its output:\n{self.output}"


class EnvironmentStartError(LostHarnessError):
    """An SDK harness did not start, or never connected."""


class SdkDisconnectedError(LostHarnessError):
    """An SDK harness ended, or one of its streams was cut, while a bundle was running."""


class InvariantError(RunnerError):
    """An invariant of this runner is broken: a bug, please report it."""
