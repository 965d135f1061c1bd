"""What Spark is asked for, for the stages of steps with resource hints.

Source: ``org.apache.spark.resource.ResourceProfileManager.isSupported``;
``org.apache.spark.resource.ResourceProfile``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from beam_spark_runner.graph.resources import Resources

GPU = "gpu"
_MIB = 1 << 20
_MIN_OVERHEAD = "spark.executor.minMemoryOverhead"
_FACTORS = ("spark.executor.memoryOverheadFactor", "spark.kubernetes.memoryOverheadFactor")
_MEMORY_MIB, _MIN_OVERHEAD_MIB, _FACTOR = 1024, 384, 0.1  # Spark's defaults
_UNITS_MIB = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1 << 20}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorFacts:
    """What is known of the executors.

    Attributes:
        can_grow: Whether Spark starts executors as stages need them: dynamic allocation.
        cores: The number of cores of an executor; 0: not known.
        overhead_mib: What each may use in MiB outside its JVM, as Python workers do.
        gpus: The number of GPUs that are assigned to each.
    """

    can_grow: bool
    cores: int = 0
    overhead_mib: int = 0
    gpus: int = 0

    @classmethod
    def of(cls, settings: Mapping[str, str | None], *, can_grow: bool) -> "ExecutorFacts":
        """Derive them from Spark's settings, of which some may be missing."""
        in_one_jvm = re.match(r"local-cluster\[\s*\d+\s*,\s*(\d+)", settings["spark.master"] or "")
        cores = in_one_jvm[1] if in_one_jvm else settings["spark.executor.cores"]
        return cls(
            can_grow=can_grow,
            cores=int(cores or 0),
            overhead_mib=_mib(settings["spark.executor.memoryOverhead"]) or _overhead_mib(settings),
            gpus=int(settings[f"spark.executor.resource.{GPU}.amount"] or 0),
        )


FACTS_ARE_IN = (
    "spark.master",
    "spark.executor.cores",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    *(_MIN_OVERHEAD, *_FACTORS),
    f"spark.executor.resource.{GPU}.amount",
)


def _overhead_mib(settings: Mapping[str, str | None]) -> int:
    """Return the memory outside the JVM of an executor for which no setting says it."""
    factor = max(float(settings[name] or 0) for name in _FACTORS) or _FACTOR
    memory_mib = _mib(settings["spark.executor.memory"]) or _MEMORY_MIB
    return max(_mib(settings[_MIN_OVERHEAD]) or _MIN_OVERHEAD_MIB, int(memory_mib * factor))


def _mib(text: str | None) -> int:
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", (text or "").strip().lower())
    return round(int(match[1]) * _UNITS_MIB[match[2] or "m"]) if match else 0


@dataclass(slots=True, kw_only=True)
class ResourceRequests:
    """What a stage asks for; 0: Spark's own number.

    Attributes:
        task_cpus: The cores of a task.
        task_gpus: The GPUs of a task.
        executor_cores: The cores of an executor, where Spark may start others.
        overhead_mib: The memory of an executor outside its JVM, in MiB, likewise.
        executor_gpus: The GPUs of an executor, likewise.
        problems: The hints that have no effect, and why.
    """

    task_cpus: int = 0
    task_gpus: int = 0
    executor_cores: int = 0
    overhead_mib: int = 0
    executor_gpus: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def numbers(self) -> tuple[int, ...]:
        """All that it asks for, which is equal for equal profiles."""
        of_tasks = self.task_cpus, self.task_gpus
        return *of_tasks, self.executor_cores, self.overhead_mib, self.executor_gpus

    @property
    def are_any(self) -> bool:
        """Whether the stage asks for anything."""
        return any(self.numbers)


def requests_for(resources: Resources, facts: ExecutorFacts) -> ResourceRequests:
    """Return what to ask for, for stages that need resources.

    A task gets the cores of ``cpu_count`` and the accelerators of ``accelerator`` for itself. The
    memory of ``min_ram`` is that of an executor's Python workers together.

    Args:
        resources: What the stages need.
        facts: What is known of the executors.
    """
    requests = ResourceRequests(problems=[*resources.problems])
    _ask_for_cpus(requests, resources.cpus, facts)
    _limit_bundles(requests, resources.max_bundles, facts)
    _ask_for_gpus(requests, resources, facts)
    ram_mib = -(-resources.ram_bytes // _MIB)
    if ram_mib and facts.can_grow:
        requests.overhead_mib = max(ram_mib, facts.overhead_mib)
    elif ram_mib > facts.overhead_mib:
        requests.problems.append(
            f"min_ram: {ram_mib} MiB, but without dynamic allocation an executor has what "
            "spark.executor.memoryOverhead says"
        )
    return requests


def _ask_for_cpus(requests: ResourceRequests, cpus: int, facts: ExecutorFacts) -> None:
    if not cpus:
        return
    if facts.can_grow:
        requests.executor_cores = max(cpus, facts.cores)
    elif cpus > facts.cores:
        has = f"has {facts.cores}" if facts.cores else "has as many as spark.executor.cores says"
        requests.problems.append(
            f"cpu_count: {cpus}, but without dynamic allocation an executor {has}"
        )
        return
    requests.task_cpus = cpus


def _limit_bundles(requests: ResourceRequests, most: int, facts: ExecutorFacts) -> None:
    if not most:
        return
    cores = requests.executor_cores or facts.cores
    if not cores and facts.can_grow:
        cores = requests.executor_cores = most
    if cores:
        # The least number of cores of a task with which ``most + 1`` of them find no room.
        requests.task_cpus = max(requests.task_cpus, cores // (most + 1) + 1)
    else:
        requests.problems.append(
            f"max_active_bundles_per_worker: {most}, but the number of cores of an executor is not "
            "known: set spark.executor.cores"
        )


def _ask_for_gpus(requests: ResourceRequests, resources: Resources, facts: ExecutorFacts) -> None:
    count, kind = resources.accelerators, resources.accelerator
    if not count:
        return
    if "tpu" in kind.lower():
        requests.problems.append(f"accelerator: Spark cannot be asked for {kind}")
    elif facts.can_grow:
        requests.executor_gpus = max(count, facts.gpus)
        requests.task_gpus = count
    elif count > facts.gpus:
        requests.problems.append(
            f"accelerator: {count} of {kind}, but without dynamic allocation an executor has what "
            f"spark.executor.resource.{GPU}.amount says: {facts.gpus}"
        )
    else:
        requests.task_gpus = count
