"""Metrics of jobs as Prometheus reads them."""

from types import SimpleNamespace
from typing import Any

from apache_beam.metrics import monitoring_infos
from apache_beam.metrics.cells import (
    BoundedTrieData,
    DistributionData,
    GaugeData,
    HistogramData,
    StringSetData,
)
from apache_beam.utils.histogram import Histogram, LinearBucket
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from beam_spark_runner.core.ids import TransformId
from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.graph.passes import run_passes
from beam_spark_runner.job.export.prometheus import JobMetrics, JobsCollector
from beam_spark_runner.observing.epoch_status import (
    EpochPart,
    EpochStatus,
    Hold,
    HoldReason,
    StepStatus,
)
from tests.golden.notation import parse

GRAPH = run_passes(parse("Seed: impulse() -> seed\nRead: pardo(seed) -> events @py"), ())
STATUS = EpochStatus(
    epoch=17,
    start=3,
    parts_us={EpochPart.TASKS: 1_500_000, EpochPart.COMMIT: 20_000},
    steps={
        "Read": StepStatus(
            input_us=MAX_US,
            output_us=2_500_000,
            hold=Hold(HoldReason.RESTRICTION, 2_500_000),
            restrictions=3,
            backlog=12.0,
        ),
        "Many": StepStatus(input_us=MIN_US, output_us=MIN_US, restrictions=200),
        "Look up": StepStatus(input_us=MAX_US, output_us=MAX_US, left=12),
    },
    stored_bytes={"Read, Group": 8_192},
)


def job(job_id: str = "1", status: EpochStatus | None = None, *infos: Any) -> JobMetrics:
    found: Any = SimpleNamespace(
        job_id=job_id,
        plan=SimpleNamespace(graph=GRAPH, is_streaming=False),
        step_names={TransformId("Read"): "My/Read"},
        watch=SimpleNamespace(
            status=status,
            took_us={EpochPart.TASKS: 9_000_000, EpochPart.COMMIT: 0},
            rates=lambda: {"Read": 12.5},
            backlog_slopes=lambda: {"Read": -3.5},
            epoch_age_s=lambda: 4.5,
            failed_commits=2,
            partitions=SimpleNamespace(advice=None),
            processing_time_s=lambda: 12.5,
        ),
        attempted=lambda: [info.SerializeToString() for info in infos],
    )
    return JobMetrics("orders", found)


def scraped(*jobs: JobMetrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return the samples by name and labels, without those of the job."""
    registry = CollectorRegistry()
    registry.register(JobsCollector(lambda: jobs))
    samples = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name != "job_name"}
            if len(jobs) == 1:
                assert (labels.pop("job_id"), sample.labels["job_name"]) == ("1", "orders")
            key = sample.name, frozenset(labels.items())
            assert key not in samples
            samples[key] = sample.value
    return samples


def of(step: str, **others: str) -> frozenset[tuple[str, str]]:
    return frozenset({"step": step, **others}.items())


def test_a_stream_exports_epochs_and_watermarks() -> None:
    found = scraped(job("1", STATUS))
    assert found["beam_spark_epochs_total", frozenset()] == 17
    tasks = frozenset({("part", "tasks")})
    assert found["beam_spark_last_epoch_seconds", tasks] == 1.5
    assert found["beam_spark_epoch_time_seconds_total", tasks] == 9
    assert found["beam_spark_input_watermark_timestamp_seconds", of("Read")] == float("inf")
    assert found["beam_spark_output_watermark_timestamp_seconds", of("Read")] == 2.5
    assert found["beam_spark_output_watermark_timestamp_seconds", of("Many")] == float("-inf")
    assert found["beam_spark_watermark_lag_seconds", of("Read")] == 10
    assert found["beam_spark_watermark_lag_seconds", of("Many")] == float("inf")
    assert found["beam_spark_watermark_lag_seconds", of("Look up")] == 0
    assert found["beam_spark_epoch_age_seconds", frozenset()] == 4.5
    assert found["beam_spark_commit_failures_total", frozenset()] == 2
    assert found["beam_spark_restarts_total", frozenset()] == 2
    assert found["beam_spark_backlog_change_per_second", of("Read")] == -3.5
    held = of("Read", held_by="restriction")
    assert found["beam_spark_watermark_hold_timestamp_seconds", held] == 2.5
    assert found["beam_spark_elements_per_second", of("Read")] == 12.5
    assert found["beam_spark_pending_restrictions", of("Many")] == 200
    assert found["beam_spark_backlog", of("Read")] == 12
    assert found["beam_spark_pending_records", of("Look up")] == 12
    assert ("beam_spark_pending_records", of("Read")) not in found
    assert ("beam_spark_backlog", of("Many")) not in found
    stored = frozenset({("steps", "Read, Group")})
    assert found["beam_spark_state_bytes", stored] == 8_192


def test_metrics_of_users_and_elements() -> None:
    (events,) = GRAPH.transforms[TransformId("Read")].outputs.values()
    found = scraped(
        job(
            "1",
            None,
            monitoring_infos.int64_user_counter("my.ns", 'a "name"', 5, ptransform="Read"),
            monitoring_infos.int64_user_distribution(
                "ns", "sizes", DistributionData(7, 2, 3, 4), ptransform="Read"
            ),
            monitoring_infos.int64_user_gauge("ns", "level", GaugeData(9), ptransform="Read"),
            monitoring_infos.int64_counter(
                monitoring_infos.ELEMENT_COUNT_URN, 11, labels={"PCOLLECTION": events}
            ),
        )
    )
    assert found == {
        ("beam_user_counter_total", of("My/Read", namespace="my.ns", name='a "name"')): 5,
        ("beam_user_distribution_count", of("My/Read", namespace="ns", name="sizes")): 2,
        ("beam_user_distribution_sum", of("My/Read", namespace="ns", name="sizes")): 7,
        ("beam_user_distribution_min", of("My/Read", namespace="ns", name="sizes")): 3,
        ("beam_user_distribution_max", of("My/Read", namespace="ns", name="sizes")): 4,
        ("beam_user_gauge", of("My/Read", namespace="ns", name="level")): 9,
        ("beam_spark_elements_total", of("Read", output="out")): 11,
    }


def test_sets_tries_and_histograms_have_metrics_of_their_kind() -> None:
    filled = Histogram(LinearBucket(0, 10, 3))
    for value in (5, 5, 15):
        filled.record(value)
    names = StringSetData({"b", "a" * 300})
    tries = BoundedTrieData(singleton=("a", "b"), bound=10)
    found = scraped(
        job(
            "1",
            None,
            monitoring_infos.user_set_string("ns", "set", names, "Read"),
            monitoring_infos.user_bounded_trie("ns", "trie", tries, "Read"),
            monitoring_infos.user_histogram("ns", "sizes", HistogramData(filled), "Read"),
        )
    )
    named = {"namespace": "ns", "name": "sizes"}
    assert found == {
        ("beam_user_string_set_size", of("My/Read", namespace="ns", name="set")): 2,
        ("beam_user_string_set_member", of("My/Read", namespace="ns", name="set", value="b")): 1,
        (
            "beam_user_string_set_member",
            of("My/Read", namespace="ns", name="set", value="a" * 200),
        ): 1,
        ("beam_user_bounded_trie_size", of("My/Read", namespace="ns", name="trie")): 1,
        ("beam_user_histogram_bucket", of("My/Read", **named, le="10.0")): 2,
        ("beam_user_histogram_bucket", of("My/Read", **named, le="20.0")): 3,
        ("beam_user_histogram_bucket", of("My/Read", **named, le="30.0")): 3,
        ("beam_user_histogram_bucket", of("My/Read", **named, le="+Inf")): 3,
    }


def test_a_server_exports_how_many_jobs_each_state_has() -> None:
    (family,) = (
        each
        for each in JobsCollector(list, lambda: {"waiting": 2, "failed": 1}).collect()
        if each.name == "beam_spark_jobs"
    )
    assert {each.labels["state"]: each.value for each in family.samples} == {
        "waiting": 2,
        "failed": 1,
    }


def test_jobs_are_apart_by_their_id() -> None:
    found = scraped(job("1", STATUS), job("2", STATUS), job("3"))
    assert {
        dict(labels)["job_id"] for name, labels in found if name == "beam_spark_epochs_total"
    } == {"1", "2"}


def test_without_jobs_nothing_is_exported() -> None:
    assert scraped() == {}


def test_a_metric_that_does_not_name_its_step_does_not_end_the_scrape() -> None:
    """It would be that of all jobs."""
    info = monitoring_infos.int64_user_gauge("space", "value", GaugeData(4, timestamp=1))
    found = scraped(job("1", None, info))
    assert (
        found[
            "beam_user_gauge",
            frozenset({"step": "", "namespace": "space", "name": "value"}.items()),
        ]
        == 4
    )
