"""The metrics and alerts of docs/monitoring.md, and the metrics that there are."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from beam_spark_runner.job.export.prometheus import JobsCollector
from beam_spark_runner.job.server.job_queue import count_by_state
from beam_spark_runner.observing.epoch_status import EpochPart, HoldReason
from beam_spark_runner.portable.monitoring import DROPPED_DUE_TO_LATENESS

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
METRIC = re.compile(r"\b(beam_(?:spark|user)_\w+)(?:\{([^}]*)\})?")
SUFFIXES = {
    "counter": ["_total"],
    "gauge": [""],
    "summary": ["_count", "_sum"],
    "histogram": ["_bucket"],
}
OF_BUCKETS = {"histogram": {"le"}}
OF_ALL = {"job_name", "job_id"}


def served() -> dict[str, set[str]]:
    """Return the labels of all metrics that the exporter serves, by name."""
    families: Iterator[Any] = JobsCollector(lambda: ()).collect()
    return {
        family.name + suffix: {*family._labelnames, *OF_BUCKETS.get(family.type, ())}
        for family in families
        for suffix in SUFFIXES[family.type]
    }


def alerts() -> list[dict[str, Any]]:
    """Return the alert rules."""
    groups = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def conditions() -> Iterator[tuple[str, str, str]]:
    """Yield metric, label and value of all conditions in alert rules."""
    for rule in alerts():
        for metric, text in METRIC.findall(rule["expr"]):
            for label, value in re.findall(r'(\w+)="([^"]*)"', text):
                yield metric, label, value


def test_the_table_has_all_metrics_with_their_labels() -> None:
    rows = [line.split("|") for line in PAGE.splitlines() if line.startswith("| `beam_")]
    documented = {
        metric: {*re.findall(r"`(\w+)`", labels), *(OF_ALL if "alone" not in labels else ())}
        for _, metrics, labels, *_ in rows
        for metric in re.findall(r"`(\w+)`", metrics)
    }
    assert documented == served()


def test_alerts_are_about_metrics_that_are_served() -> None:
    assert len(alerts()) > 5
    for rule in alerts():
        metrics = {name for name, _ in METRIC.findall(rule["expr"])}
        assert metrics, rule
        assert metrics <= set(served()), rule
        assert rule["annotations"]["summary"]


def test_alerts_have_labels_that_there_are() -> None:
    names = {each for rule in alerts() for each in re.findall(r"\bby \(([^)]*)\)", rule["expr"])}
    labels = {label for each in names for label in each.split(", ")}
    assert labels <= set().union(*served().values())
    values = {
        "part": {each.value for each in EpochPart},
        "held_by": {each.value for each in HoldReason},
        "name": {DROPPED_DUE_TO_LATENESS},
    }
    values["state"] = set(count_by_state([]))
    found = list(conditions())
    assert {label for _, label, _ in found} == {"job_name", *values}
    for metric, label, value in found:
        assert label in served()[metric]
        assert value in values.get(label, {value})


def test_alerts_say_what_to_do() -> None:
    """Each has a separate section, and there is no other."""
    wanted = [rule["annotations"]["runbook"] for rule in alerts()]
    sections = re.findall(r"^## (\w+)$", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE)
    assert wanted == [f"docs/alerts.md#{name.lower()}" for name in sections]
    assert [rule["alert"] for rule in alerts()] == sections


def test_each_alert_fires_in_a_test() -> None:
    text = (DEPLOY / "alerts_test.yaml").read_text()
    assert [rule["alert"] for rule in alerts() if rule["alert"] not in text] == []


def test_the_dashboard_shows_metrics_that_are_served() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "streams.json").read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    names = {name for each in shown for name, _ in METRIC.findall(each)}
    assert len(names) > 10
    assert names <= set(served())
    for each in shown:
        for metric, conditions_ in METRIC.findall(each):
            assert set(re.findall(r"(\w+)=~?\"", conditions_)) <= served()[metric]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


def test_all_values_of_labels_are_described() -> None:
    lines = PAGE.replace("\n  ", " ").splitlines()
    for label, values in (("part", EpochPart), ("held_by", HoldReason)):
        (line,) = (each for each in lines if each.startswith(f"- `{label}`"))
        assert {each.value for each in values} <= set(re.findall(r"`([^`]*)`", line))
