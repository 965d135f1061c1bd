"""What the page shows of a job, from facts."""

import dataclasses
import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from beam_spark_runner.job.page import drawing
from beam_spark_runner.job.page.api_forms import job_details
from beam_spark_runner.job.page.job_view import job_row, job_view
from beam_spark_runner.job.page.page_query import PageQuery
from beam_spark_runner.job.page.step_states import StepState, step_state
from beam_spark_runner.job.page.step_view import drawn_graph
from beam_spark_runner.observing.message_lines import INFO, message_line
from beam_spark_runner.observing.segment_times import SegmentTime
from tests.unit.job.page.observed import EVIL, GRAPH, NOW_S, failed, stream

QUERY = PageQuery(job_id="7")


def test_a_row_of_the_list() -> None:
    row = job_row(stream())
    assert (row.state, row.tone, row.age) == ("running", "held", "1 min 5 s")
    assert row.lag == "3 min 20 s behind"
    assert row.rate == "25/s"
    assert row.sentence.startswith("Read/Process holds the watermark")


def test_a_step_has_the_state_of_its_watermark_or_job() -> None:
    facts = stream()
    states = {node.name: step_state(facts, node) for node in GRAPH.nodes}
    assert states["Read/Process"] is StepState.HOLDING
    assert states["Rates"] is StepState.IDLE
    assert step_state(failed(), GRAPH.nodes[3]) is StepState.FAILED
    batch = stream(
        is_streaming=False, status=None, segment_times=(SegmentTime(segment=0, began_s=NOW_S - 5),)
    )
    assert {step_state(batch, node) for node in GRAPH.nodes} == {StepState.RUNNING}


def test_the_graph_is_well_formed_and_escaped() -> None:
    for query in (QUERY, QUERY.with_step(EVIL), QUERY.unfolding_all()):
        svg = drawn_graph(stream(), query)
        root = ElementTree.fromstring(svg)
        assert not [each for each in root.iter() if each.tag.endswith("script")]
        titles = [each.text or "" for each in root.iter("title")]
        assert EVIL in titles


def test_pictures_have_no_styles_which_the_page_forbids() -> None:
    view = job_view(stream(), QUERY)
    for svg in (view.graph_svg, view.bars_svg, view.spark_svg):
        assert svg
        assert "style" not in svg


def test_records_and_timers_of_a_step() -> None:
    panel = job_view(stream(), QUERY.with_step(EVIL)).panel
    assert panel is not None
    shown = dict(panel.facts)
    assert shown["records of its level"] == "1,234"
    assert shown["next timer of its level"] == "at the watermark 1970-01-01T00:00:00Z"
    assert shown["next timer in processing time"] == "3.0 s after the last epoch"
    assert job_details(stream())["stored"] == {
        EVIL: {"records": 1_234, "next_event_timer_s": 0, "next_clock_timer_s": NOW_S + 3}
    }
    assert job_details(stream())["state"] == "running"
    other = job_view(stream(), QUERY.with_step("Sum")).panel
    assert other is not None
    assert "records of its level" not in dict(other.facts)


def test_samples_of_a_step() -> None:
    panel = job_view(stream(), QUERY.with_step(EVIL)).panel
    assert panel is not None
    assert panel.samples == ["newest", f"(1, '{EVIL}')"]
    edges = {edge["collection"]: edge["samples"] for edge in job_details(stream())["edges"]}
    assert edges["e"][-1] == "newest"
    assert edges["r"] == []


def test_savepoints_have_a_size_and_an_age() -> None:
    view = job_view(stream(), QUERY)
    assert view.savepoints == [("15", f"/there/{EVIL}", "4.1 kB", "1 min 5 s ago")]
    assert ("state", "8.2 kB") in view.tiles
    assert job_details(stream())["savepoints"][0]["bytes"] == 4_096


def test_the_slowest_tasks() -> None:
    (task,) = job_view(stream(), QUERY).tasks
    assert (task.partition, task.state, task.spent) == ("3", "running", "12.5 s")
    assert task.usual == "500 ms of 4"
    assert task.key == f"90% of its 1,000 elements have the key '{EVIL}'"
    (level,) = job_details(stream())["levels"]
    assert level["slowest"][0]["largest_key"]["elements"] == 900


def test_the_panel_of_a_step() -> None:
    panel = job_view(stream(), QUERY.with_step("Read/Process")).panel
    assert panel is not None
    found = dict(panel.facts)
    assert found["elements out"] == "1,200"
    assert found["held by"] == "restriction, 3 min 20 s behind"
    assert found["restrictions stored"] == "2"


def test_the_panel_of_a_composite() -> None:
    panel = job_view(stream(), QUERY.unfolding("Sum").with_step("Sum")).panel
    assert panel is not None
    assert [part.path for part in panel.parts] == ["Sum/Group", "Sum/Merge"]
    assert dict(panel.facts)["elements in"] == "1,200"


def test_a_step_that_is_not_there_has_no_panel() -> None:
    assert job_view(stream(), QUERY.with_step("Nothing")).panel is None


def test_warnings_that_repeat_are_one() -> None:
    (warning,) = job_view(stream(), QUERY).warnings
    assert (warning.step, warning.count) == (EVIL, 2)
    assert warning.text == "a group of keys has 2 GB; use smaller keys"


def test_errors_that_user_code_has_logged() -> None:
    (error,) = job_view(stream(), QUERY).errors
    assert (error.step, error.worker, error.trace) == ("Sum/Merge", "worker 1", f"Traceback {EVIL}")


def test_log_lines_of_a_level_with_a_text() -> None:
    def texts(**fields: Any) -> list[str]:
        view = job_view(stream(), PageQuery(job_id="7", **fields))
        return [line.text for line in view.lines]

    assert len(texts()) == 4
    assert len(texts(level="warning")) == 3
    assert texts(find="WORKER 3") == [f"parsed {EVIL}"]
    assert texts(worker="worker 3") == [f"parsed {EVIL}"]
    assert texts(worker="worker 3", level="warning") == []


def test_workers_to_choose_from_are_those_that_have_written_and_the_chosen_one() -> None:
    lines = [message_line("", INFO, f"text [Step, worker {number}]") for number in (10, 2, 2)]
    lines.append(message_line("", INFO, "of the runner"))
    query = PageQuery(job_id="7", worker=EVIL)
    view = job_view(stream(messages=tuple(lines)), query)
    assert view.workers == [EVIL, "worker 2", "worker 10"]


def test_segments_of_a_failed_job() -> None:
    times = (
        SegmentTime(segment=0, began_s=NOW_S - 65, ended_s=NOW_S - 62),
        SegmentTime(segment=1, began_s=NOW_S - 62),
    )
    facts = failed()
    view = job_view(
        stream(state="FAILED", states=facts.states, segment_times=times, is_streaming=False), QUERY
    )
    names = [
        each.get("class") for each in ElementTree.fromstring(view.spans_svg) if each.tag == "g"
    ]
    assert names == ["done", "failed"]


def test_json_has_everything_and_no_numbers_that_json_has_not() -> None:
    found = json.loads(json.dumps(job_details(stream()), allow_nan=False))
    steps = {step["name"]: step for step in found["steps"]}
    assert steps["Read/Process"]["watermarks"]["input_s"] == "end"
    assert steps["Read/Process"]["backlog"] is None
    assert [edge["kind"] for edge in found["edges"]].count("side input") == 1
    assert found["sentence"]["step"] == "Read/Process"


@pytest.mark.parametrize("value", [0.0, 0.4, 1.0, 7.0, -1.0])
def test_progress_is_drawn_inside_of_its_bar(value: float) -> None:
    widths = re.findall(r'width="(\d+)"', drawing.progress_svg(value, "some"))
    assert 0 <= int(widths[-1]) <= 1_000


def test_queries_are_read_as_they_are_written() -> None:
    query = QUERY.unfolding("a/b").unfolding("c d").with_step(EVIL).with_level("info")
    query = dataclasses.replace(query, worker=EVIL, find="a b")
    _, _, text = query.href().partition("?")
    from urllib.parse import parse_qsl

    assert PageQuery.from_pairs("7", parse_qsl(text)) == query
    assert PageQuery.from_pairs("7", [("level", "loud"), ("find", "x" * 999)]).level == ""


def test_folding_a_composite_folds_what_is_inside() -> None:
    query = QUERY.unfolding("a").unfolding("a/b").unfolding("ab")
    assert query.folding("a").unfolded == ("ab",)
