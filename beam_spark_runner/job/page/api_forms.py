"""What the page serves as JSON, and its description in OpenAPI."""

from collections.abc import Mapping
from typing import Any

from beam_spark_runner.core.time import MAX_US, MIN_US
from beam_spark_runner.job.page.job_view import state_word
from beam_spark_runner.job.page.step_states import step_state
from beam_spark_runner.observing.epoch_status import EpochPart, LevelState, StepStatus
from beam_spark_runner.observing.held_back import held_back
from beam_spark_runner.observing.job_facts import JobFacts, StepFigures
from beam_spark_runner.observing.level_works import LevelWork
from beam_spark_runner.observing.message_lines import MessageLine

Json = dict[str, Any]
_NOTHING = StepFigures()


def job_summary(facts: JobFacts) -> Json:
    """Return a job as a list has it. Times are Unix times in seconds."""
    sentence = held_back(facts)
    return {
        "id": facts.job_id,
        "name": facts.name,
        "state": state_word(facts.state),
        "is_streaming": facts.is_streaming,
        "began_s": facts.began_s,
        "ended_s": facts.entered_s if facts.has_ended else None,
        "sentence": {
            "text": sentence.text,
            "tone": sentence.tone.value,
            "remedy": sentence.remedy,
            "step": sentence.step or None,
        },
        "error": facts.error or None,
        "read": facts.read,
        "read_per_second": list(facts.read_per_second),
    }


def job_details(facts: JobFacts) -> Json:
    """Return everything about a job but its messages."""
    return {
        **job_summary(facts),
        "states": [{"state": state_word(state), "at_s": at_s} for state, at_s in facts.states],
        "steps": [
            {
                "id": node.id,
                "name": node.name,
                "kind": node.kind,
                "state": step_state(facts, node).value,
                "segment": node.segment,
                **_figures(facts.figures.get(node.name, _NOTHING)),
                **_status(facts.steps.get(node.name)),
            }
            for node in facts.graph.nodes
        ],
        "edges": [
            {
                "producer": edge.producer,
                "consumer": edge.consumer,
                "collection": edge.collection,
                "kind": edge.kind.value,
                "samples": list(facts.samples.get(edge.collection, ())),
                "elements": facts.collections.get(edge.collection),
                "elements_per_second": facts.rates.get(edge.collection),
            }
            for edge in facts.graph.edges
        ],
        "epoch": None if facts.status is None else facts.status.epoch,
        "partitions": None if facts.status is None else facts.status.partitions,
        "advised_partitions": facts.advised_partitions,
        "last_commit_s": facts.committed_s,
        "epochs": [
            {
                "epoch": item.epoch,
                "clock_s": item.clock_us / 1e6,
                "parts_s": {
                    part.value: took_us / 1e6
                    for part, took_us in zip(EpochPart, item.parts_us, strict=True)
                },
            }
            for item in facts.epochs
        ],
        "savepoints": [
            {"path": path, "epoch": epoch, "bytes": size_bytes, "at_s": at_s}
            for path, epoch, size_bytes, at_s in facts.savepoints
        ],
        "state_bytes": {} if facts.status is None else dict(facts.status.stored_bytes),
        "stored": {} if facts.status is None else _stored(facts.status.stored_state),
        "segments": facts.segments,
        "segment_times": [
            {"segment": item.segment, "began_s": item.began_s, "ended_s": item.ended_s}
            for item in facts.segment_times
        ],
        "levels": [_level(work) for work in facts.level_works],
        "lost_executors": [
            {"executor": each.executor, "at_s": each.at_s, "reason": each.reason}
            for each in facts.lost_executors
        ],
        "options": dict(facts.options),
        "plan": facts.plan_text,
        "spark_url": facts.spark_url,
    }


def message_form(line: MessageLine) -> Json:
    """Return one message."""
    return {
        "at": line.at,
        "level": line.level,
        "text": line.text,
        "step": line.step or None,
        "worker": line.worker or None,
        "trace": line.trace or None,
    }


def _level(work: LevelWork) -> Json:
    slowest = [
        {
            "partition": task.partition,
            "is_done": task.is_done,
            "spent_s": task.spent_s,
            "elements": task.rows,
            "largest_key": None
            if (key := task.largest) is None
            else {"step": key.step, "key": key.text, "elements": key.rows},
        }
        for task in work.slowest
    ]
    return {
        "level": work.level,
        "steps": work.steps,
        "tasks": work.tasks,
        "elements": work.rows,
        "median_s": work.median_s,
        "slowest": slowest,
    }


def _stored(states: Mapping[str, LevelState]) -> Json:
    return {
        steps: {
            "records": state.records,
            "next_event_timer_s": _due(state.next_event_us),
            "next_clock_timer_s": _due(state.next_clock_us),
        }
        for steps, state in states.items()
    }


def _due(time_us: int | None) -> float | str | None:
    return None if time_us is None else _time(time_us)


def _figures(figures: StepFigures) -> Json:
    return {
        "elements_in": figures.taken,
        "elements_out": figures.emitted,
        "bytes_out": figures.emitted_bytes,
        "elements_per_second": figures.per_second,
        "busy_s": figures.busy_ms / 1e3,
        "busy_share": figures.busy_share,
        "metrics": dict(figures.metrics),
    }


def _status(status: StepStatus | None) -> Json:
    if status is None:
        return {"watermarks": None}
    hold, blocked = status.hold, status.blocked
    return {
        "watermarks": {"input_s": _time(status.input_us), "output_s": _time(status.output_us)},
        "held_by": None if hold is None else hold.holder.value,
        "held_at_s": None if hold is None else _time(hold.at_us),
        "restrictions": status.restrictions,
        "backlog": _finite(status.backlog),
        "waits_for": None if blocked is None else list(blocked.producers),
        "left": status.left,
    }


def _finite(number: float | None) -> float | None:
    """Return None for what is no number in JSON: restriction providers may return anything."""
    return number if number is not None and abs(number) < float("inf") else None


def _time(time_us: int) -> float | str:
    """Return an event time in seconds of Unix time; the ends of time have no number in JSON."""
    if time_us <= MIN_US:
        return "beginning"
    return "end" if time_us >= MAX_US else time_us / 1e6
