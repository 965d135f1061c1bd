"""Spark's resource profiles of stages whose steps have resource hints."""

import logging
from collections.abc import Iterable

from pyspark.resource import (
    ExecutorResourceRequests,
    ResourceProfile,
    ResourceProfileBuilder,
    TaskResourceRequests,
)

from beam_spark_runner.core.rendering import render_error
from beam_spark_runner.graph.resources import Resources
from beam_spark_runner.spark.session.conf import get_conf
from beam_spark_runner.spark.session.handle import SessionHandle
from beam_spark_runner.spark.session.resource_requests import (
    FACTS_ARE_IN,
    GPU,
    ExecutorFacts,
    ResourceRequests,
    requests_for,
)

_LOGGER = logging.getLogger(__name__)
_OF_GPU = f"spark.executor.resource.{GPU}"


class ResourceProfiles:
    """Makes one profile for each kind of resources. Hints without effect are logged once.

    Spark does not run tasks of one profile in executors of another one, even if both ask for the
    same: so steps that need the same share a profile.

    Args:
        handle: The session of the pipeline.
    """

    def __init__(self, handle: SessionHandle) -> None:
        self._handle = handle
        self._profiles: dict[Resources, ResourceProfile | None] = {}
        self._named: dict[str, set[str]] = {}  # the steps of each problem that was logged
        self._by_numbers: dict[tuple[int, ...], ResourceProfile] = {}

    def profile_for(self, resources: Resources) -> ResourceProfile | None:
        """Return the profile of stages that need resources; None: Spark's own."""
        if not (resources.steps or resources.problems):
            return None
        if resources not in self._profiles:
            self._profiles[resources] = self._new(resources)
        return self._profiles[resources]

    def _new(self, resources: Resources) -> ResourceProfile | None:
        handle = self._handle
        if handle.is_local:
            self._warn(resources, [f"tasks run in one process on this machine ({handle.master})"])
            return None
        if not handle.version.has_profiles_of_frames:
            self._warn(
                resources, [f"Spark {handle.version} has none for DataFrames; Spark 4.0 has"]
            )
            return None
        settings = {name: get_conf(handle.spark, name) for name in FACTS_ARE_IN}
        requests = requests_for(resources, ExecutorFacts.of(settings, can_grow=handle.can_grow()))
        self._warn(resources, requests.problems)
        if not requests.are_any:
            return None
        known = self._by_numbers.get(requests.numbers)
        profile = known or self._built(requests)
        try:
            number = profile.id  # makes it, on Spark Connect
        except Exception as error:  # a Spark of a vendor may not have any
            self._warn(
                resources, [f"Spark refuses a resource profile: {render_error(error).cause}"]
            )
            return None
        self._by_numbers[requests.numbers] = profile
        _LOGGER.info("resource profile %d is for %s", number, ", ".join(resources.steps))
        return profile

    def _built(self, requests: ResourceRequests) -> ResourceProfile:
        tasks = TaskResourceRequests()
        if requests.task_cpus:
            tasks.cpus(requests.task_cpus)
        if requests.task_gpus:
            tasks.resource(GPU, requests.task_gpus)
        executors = ExecutorResourceRequests()
        if requests.executor_cores:
            executors.cores(requests.executor_cores)
        if requests.overhead_mib:
            executors.memoryOverhead(f"{requests.overhead_mib}m")
        if requests.executor_gpus:
            spark = self._handle.spark
            script, vendor = (
                get_conf(spark, f"{_OF_GPU}.{name}") or "" for name in ("discoveryScript", "vendor")
            )
            executors.resource(GPU, requests.executor_gpus, script, vendor)
        builder = ResourceProfileBuilder().require(tasks)
        return builder.require(executors).build

    def _warn(self, resources: Resources, problems: Iterable[str]) -> None:
        """Log problems, with the steps that were not named with them before."""
        for problem in problems:
            named = self._named.setdefault(problem, set())
            steps = [step for step in resources.steps if step not in named]
            named.update(steps)
            if steps:
                _LOGGER.warning(
                    "a resource hint of %s has no effect: %s", ", ".join(steps), problem
                )
