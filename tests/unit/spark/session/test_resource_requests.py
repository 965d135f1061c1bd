"""What Spark is asked for, for steps with resource hints."""

import pytest

from beam_spark_runner.graph.resources import Resources
from beam_spark_runner.spark.session.resource_requests import (
    FACTS_ARE_IN,
    ExecutorFacts,
    requests_for,
)

GROWS = ExecutorFacts(can_grow=True, cores=2, overhead_mib=512)
FIXED = ExecutorFacts(can_grow=False, cores=4, overhead_mib=512, gpus=1)


def test_executors_are_asked_for_where_spark_starts_them() -> None:
    resources = Resources(ram_bytes=4 << 30, cpus=3, accelerators=2, accelerator="t4", steps=("a",))
    found = requests_for(resources, GROWS)
    assert (found.executor_cores, found.task_cpus) == (3, 3)
    assert (found.overhead_mib, found.executor_gpus, found.task_gpus) == (4096, 2, 2)
    assert not found.problems


def test_executors_are_never_asked_for_less_than_they_have() -> None:
    found = requests_for(Resources(ram_bytes=1, cpus=1), GROWS)
    assert (found.executor_cores, found.task_cpus, found.overhead_mib) == (2, 1, 512)


def test_only_tasks_are_asked_for_where_executors_are_fixed() -> None:
    found = requests_for(Resources(cpus=3, accelerators=1, accelerator="t4"), FIXED)
    assert (found.task_cpus, found.task_gpus) == (3, 1)
    assert (found.executor_cores, found.overhead_mib, found.executor_gpus) == (0, 0, 0)


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        (Resources(cpus=5), "cpu_count: 5, but without dynamic allocation an executor has 4"),
        (Resources(ram_bytes=1 << 30), "min_ram: 1024 MiB, but without dynamic allocation"),
        (Resources(accelerators=2, accelerator="t4"), "accelerator: 2 of t4, but without dynamic"),
        (Resources(accelerators=1, accelerator="tpu-v5"), "accelerator: Spark cannot be asked for"),
        (Resources(problems=("cpu_count: no",)), "cpu_count: no"),
    ],
)
def test_a_hint_without_effect_is_a_problem(resources: Resources, problem: str) -> None:
    found = requests_for(resources, FIXED)
    assert not found.are_any
    assert [each[: len(problem)] for each in found.problems] == [problem]


@pytest.mark.parametrize("cores", range(1, 17))
@pytest.mark.parametrize("most", range(1, 17))
def test_as_many_bundles_as_a_worker_may_process(cores: int, most: int) -> None:
    found = requests_for(Resources(max_bundles=most), ExecutorFacts(can_grow=False, cores=cores))
    assert 1 <= cores // found.task_cpus <= most
    assert found.task_cpus == 1 or cores // (found.task_cpus - 1) > most


def test_bundles_are_limited_only_where_the_cores_are_known() -> None:
    fixed = requests_for(Resources(max_bundles=2), ExecutorFacts(can_grow=False))
    assert fixed.problems
    assert not fixed.are_any
    grows = requests_for(Resources(max_bundles=2), ExecutorFacts(can_grow=True))
    assert (grows.executor_cores, grows.task_cpus) == (2, 1)


@pytest.mark.parametrize(
    ("master", "cores"),
    [("yarn", 3), ("local-cluster[2, 5, 1024]", 5)],
)
def test_facts_of_settings(master: str, cores: int) -> None:
    settings: dict[str, str | None] = dict.fromkeys(FACTS_ARE_IN)
    settings |= {
        "spark.master": master,
        "spark.executor.cores": "3",
        "spark.executor.memoryOverhead": "2g",
    }
    assert ExecutorFacts.of(settings, can_grow=True) == ExecutorFacts(
        can_grow=True, cores=cores, overhead_mib=2048
    )


@pytest.mark.parametrize(
    ("given", "overhead_mib"),
    [
        ({}, 384),
        ({"spark.executor.memory": "20g"}, 2048),
        ({"spark.executor.memory": "20g", "spark.executor.memoryOverheadFactor": "0.5"}, 10240),
        ({"spark.executor.memory": "20g", "spark.kubernetes.memoryOverheadFactor": "0.4"}, 8192),
        ({"spark.executor.minMemoryOverhead": "1g"}, 1024),
        ({"spark.executor.memory": "20g", "spark.executor.memoryOverhead": "100"}, 100),
    ],
)
def test_hints_do_not_take_memory_from_executors(given: dict[str, str], overhead_mib: int) -> None:
    """Also where Spark derives how much they have outside the JVM."""
    settings: dict[str, str | None] = dict.fromkeys(FACTS_ARE_IN)
    facts = ExecutorFacts.of(settings | given, can_grow=True)
    assert requests_for(Resources(ram_bytes=1 << 20), facts).overhead_mib == overhead_mib
