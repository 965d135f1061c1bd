"""Limits and settings that are the same for all tasks of a job."""

from dataclasses import dataclass, field

from beam_spark_runner.backchannel.transport import Route
from beam_spark_runner.engine.program import ShardLocations
from beam_spark_runner.harness.main_classes import CodedClasses
from beam_spark_runner.harness.remote.settings import HarnessSettings
from beam_spark_runner.harness.values.spill import MEMORY_LIMIT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits that tasks obey. ``row_limit_bytes``: longer values travel in pieces.

    ``cache_bytes``: the size of a worker's cache of decoded side inputs. ``spill_bytes``: the
    memory of a task for large groups; the rest is on disk. ``options_json``: pipeline options,
    for user code that reads them. ``working_folder``, ``import_path``: the program's, if
    tasks run on its machine. ``main_classes``: of the program's main module.
    ``route``: to the driver's backchannel; None: there is none.
    ``harnesses``: set where code runs in SDK harnesses. ``shards``: set where the pipeline
    streams. ``user_timer_batch``: set where the firing of user timers may be interrupted.
    ``stuck_s``: for how long user code may make no progress; 0: for ever.
    """

    max_attempts: int
    row_limit_bytes: int
    max_element_bytes: int
    cache_bytes: int
    spill_bytes: int = MEMORY_LIMIT_BYTES
    options_json: str = "{}"
    working_folder: str | None = None
    import_path: tuple[str, ...] = ()
    main_classes: CodedClasses = field(default_factory=dict)
    route: Route | None = None
    harnesses: HarnessSettings | None = None
    shards: ShardLocations | None = None
    user_timer_batch: int | None = None
    stuck_s: float = 0.0
