"""Limits and settings that are the same for all tasks of a job."""

from dataclasses import dataclass, field

from beam_spark_runner.backchannel.transport import Route
from beam_spark_runner.core.step_chunks import StepChunks
from beam_spark_runner.harness.main_classes import CodedClasses
from beam_spark_runner.harness.remote.settings import HarnessSettings
from beam_spark_runner.harness.values.spilled_group import MEMORY_LIMIT_BYTES

ROW_LIMIT_BYTES = 1 << 18
"""Larger rows take twice their size in heaps up to 2 GB (G1: humongous)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What all tasks of a job obey.

    Attributes:
        max_attempts: at a task, before Spark fails the Spark job.
        row_limit_bytes: longer values travel in pieces.
        max_element_bytes: longer elements are refused.
        cache_bytes: the size of a worker's cache of decoded side inputs.
        group_memory_bytes: the memory of a task for large groups; the rest is on disk.
        options_json: pipeline options, for user code that reads them, as SDK harnesses get them.
        working_folder: the program's, if tasks run on its machine.
        import_path: likewise.
        main_classes: of the program's main module.
        route: to the driver's backchannel; None: there is none.
        harnesses: set where code runs in SDK harnesses.
        in_program: tasks run in the process that has built the pipeline, whose log, main module and
            classes they share.
        step_chunks: whether steps process chunks of elements.
        stuck_s: for how long user code may make no progress; 0: forever.
    """

    max_attempts: int
    row_limit_bytes: int
    max_element_bytes: int
    cache_bytes: int
    group_memory_bytes: int = MEMORY_LIMIT_BYTES
    options_json: str = "{}"
    working_folder: str | None = None
    import_path: tuple[str, ...] = ()
    main_classes: CodedClasses = field(default_factory=dict)
    route: Route | None = None
    harnesses: HarnessSettings | None = None
    in_program: bool = False
    step_chunks: StepChunks = "auto"
    stuck_s: float = 0.0
