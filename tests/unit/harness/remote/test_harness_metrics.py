"""Metrics of a harness are checked where they arrive."""

import pytest
from apache_beam.metrics import monitoring_infos as mi

from beam_spark_runner.harness.beam.plugin.block_edges import LOG_MARK_URN
from beam_spark_runner.harness.remote import sdk_metrics
from beam_spark_runner.harness.remote.sdk_metrics import HarnessMetrics

GOOD = mi.int64_user_counter("ns", "good", 1, "t")
BAD = mi.create_monitoring_info(
    mi.USER_COUNTER_URN, mi.SUM_INT64_TYPE, b"", mi.create_labels("t", "ns", "bad")
)
MARK = mi.int64_counter(LOG_MARK_URN, 7)


def test_malformed_ones_are_left_out_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics = HarnessMetrics("java:2.65.0")
    for _ in range(3):
        assert metrics.sound([BAD, GOOD, MARK]) == [GOOD.SerializeToString()]
    assert (
        caplog.text.count("the SDK java:2.65.0 has sent a value of the metric 'ns:bad of t'") == 1
    )
    metrics.forget()
    metrics.sound([BAD])
    assert caplog.text.count("'ns:bad of t'") == 2


def test_a_bundle_has_a_limited_number_of_metrics(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sdk_metrics, "MAX_METRICS", 2)
    assert len(HarnessMetrics("sdk").sound([GOOD] * 5)) == 2
    assert "more than 2 metrics" in caplog.text


def test_counters() -> None:
    metrics = HarnessMetrics("sdk")
    assert metrics.counter(MARK) == 7
    assert metrics.counter(BAD) is None
