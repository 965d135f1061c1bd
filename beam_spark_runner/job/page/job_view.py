"""A job, and a list of jobs, as the page shows them. Pure: from facts to texts and pictures."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from beam_spark_runner.core.rendering import first_line_of
from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.job.page.drawing import bars_svg, progress_svg, spans_svg, sparkline_svg
from beam_spark_runner.job.page.page_query import EVERYTHING, PageQuery
from beam_spark_runner.job.page.step_view import (
    StepPanel,
    StepRow,
    drawn_graph,
    step_panel,
    step_rows,
)
from beam_spark_runner.job.page.texts import bytes_text, lag_text, rate_text, seconds_text
from beam_spark_runner.observing import job_facts
from beam_spark_runner.observing.epoch_status import EpochPart, EpochStatus
from beam_spark_runner.observing.held_back import held_back
from beam_spark_runner.observing.job_facts import JobFacts
from beam_spark_runner.observing.message_lines import ERROR, LEVELS, WARNING, MessageLine
from beam_spark_runner.observing.sentence import Sentence
from beam_spark_runner.observing.skew import key_text

MAX_LINES = 200
"""The log lines that are shown; a download has all."""
_SLOW_FROM_S = 1.0
_MAX_TASKS = 10
_WORDS = {job_facts.QUEUED: "waiting"}  # Beam has no word for a queue
PARTS = tuple(part.value.lower() for part in EpochPart)
"""Classes of the style sheet for the parts of an epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A line of the list of jobs."""

    job_id: str
    name: str
    href: str
    state: str
    tone: str
    sentence: str
    age: str
    lag: str
    rate: str
    spark_svg: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WarningRow:
    """A warning of the runner: its step, its text, and how often it was given."""

    at: str
    step: str
    href: str
    text: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A slow task, with what is usual in its level."""

    steps: str
    partition: str
    state: str
    spent: str
    usual: str
    rows: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job. What ends with ``svg`` is HTML, all else is text.

    Attributes:
        query: The choices of the viewer.
        name, state: Texts.
        has_ended: Whether the state is the last one.
        can_drain: Whether it streams, and runs.
        sentence: What holds it back.
        sentence_href: Where its step is shown. "": it is about none.
        tiles: Pairs of a name and a value.
        spark_svg: The throughput.
        progress_svg: How much of a batch pipeline is complete. "": not known.
        warnings: The runner's warnings, the newest first.
        graph_svg: The steps. "": not known, or too many.
        panel: The chosen step. None: none.
        rows: The steps, at most ``MAX_DRAWN``.
        steps: How many there are.
        bars_svg: The latest epochs. "": none.
        longest: What the highest of their bars is.
        bar_parts: The names and mean times of their parts.
        spans_svg: The segments that have begun. "": none.
        savepoints: Epoch, folder, size and age of savepoints, the newest first.
        tasks: The slowest tasks, the slowest first.
        errors: Errors and what user code has logged as errors, the newest first.
        lines: Log lines, the newest last.
        levels: The levels of log lines, with the addresses that choose them.
        workers: The workers that have written log lines, and the chosen one.
        plan_text, options, spark_url: See ``JobFacts``.
        is_folded: Whether composites are folded.
    """

    query: PageQuery
    name: str
    state: str
    has_ended: bool
    can_drain: bool
    sentence: Sentence
    sentence_href: str
    tiles: Sequence[tuple[str, str]]
    spark_svg: str
    progress_svg: str
    warnings: Sequence[WarningRow]
    graph_svg: str
    panel: StepPanel | None
    rows: Sequence[StepRow]
    steps: int
    bars_svg: str
    longest: str
    bar_parts: Sequence[tuple[str, str, str]]
    spans_svg: str
    savepoints: Sequence[tuple[str, str, str, str]]
    tasks: Sequence[TaskRow]
    errors: Sequence[MessageLine]
    lines: Sequence[MessageLine]
    levels: Sequence[tuple[str, str, bool]]
    workers: Sequence[str]
    plan_text: str
    options: Sequence[tuple[str, str]]
    spark_url: str | None
    is_folded: bool


def job_row(facts: JobFacts) -> JobRow:
    """Return a line of the list of jobs."""
    sentence = held_back(facts)
    rate = facts.read_per_second[-1] if facts.read_per_second else None
    return JobRow(
        job_id=facts.job_id,
        name=facts.name or "unnamed",
        href=PageQuery(job_id=facts.job_id).href(),
        state=state_word(facts.state),
        tone=sentence.tone.value,
        sentence=sentence.text,
        age=seconds_text(facts.age_s),
        lag=_lag(facts),
        rate="—" if facts.has_ended else rate_text(rate),
        spark_svg=sparkline_svg(
            facts.read_per_second, "Elements per second that sources have emitted"
        ),
        error=first_line_of(facts.error),
    )


def job_view(facts: JobFacts, query: PageQuery) -> JobView:
    """Return a job as the page shows it."""
    sentence = held_back(facts)
    return JobView(
        query=query,
        name=facts.name or "unnamed",
        state=state_word(facts.state),
        has_ended=facts.has_ended,
        can_drain=bool(facts.is_streaming) and facts.state == job_facts.RUNNING,
        sentence=sentence,
        sentence_href=query.with_step(sentence.step).href("step") if sentence.step else "",
        tiles=_tiles(facts),
        spark_svg=sparkline_svg(
            facts.read_per_second, "Elements per second that sources have emitted", 240, 40
        ),
        progress_svg=_progress(facts),
        warnings=_warnings(facts, query),
        graph_svg=drawn_graph(facts, query),
        panel=step_panel(facts, query),
        rows=step_rows(facts, query),
        steps=len(facts.graph.nodes),
        bars_svg=_bars(facts),
        longest=_longest(facts),
        bar_parts=_bar_parts(facts),
        spans_svg=_spans(facts),
        savepoints=_savepoints(facts),
        tasks=_slow_tasks(facts),
        errors=[
            line
            for line in reversed(facts.messages)
            if line.level == ERROR or line.text.startswith(("ERROR: ", "CRITICAL: "))
        ][:MAX_LINES],
        lines=lines_for(facts.messages, query)[-MAX_LINES:],
        levels=[("all", query.with_level("").href("log"), not query.level)]
        + [(each, query.with_level(each).href("log"), query.level == each) for each in LEVELS],
        workers=_workers(facts.messages, query),
        plan_text=facts.plan_text,
        options=facts.options,
        spark_url=facts.spark_url,
        is_folded=EVERYTHING not in query.unfolded,
    )


def state_word(state: str) -> str:
    """Return a state of Beam's for people, which is a class of the style sheet, too."""
    return _WORDS.get(state, state.lower())


def lines_for(lines: Sequence[MessageLine], query: PageQuery) -> list[MessageLine]:
    """Return the log lines of the chosen level and above, of the worker, that have the text."""
    levels = LEVELS[: LEVELS.index(query.level) + 1] if query.level else LEVELS
    text = query.find.lower()
    return [
        line
        for line in lines
        if line.level in levels
        and query.worker in ("", line.worker)
        and (not text or text in f"{line.text} {line.step} {line.worker} {line.trace}".lower())
    ]


def _workers(lines: Sequence[MessageLine], query: PageQuery) -> list[str]:
    """Return the workers by name, with their numbers in order: worker 2 before worker 10."""
    names = {line.worker for line in lines} | {query.worker}
    parts = {name: re.split(r"(\d+)", name) for name in names if name}  # texts and numbers in turn
    return sorted(
        parts,
        key=lambda name: [(int(x), "") if x.isdecimal() else (0, x) for x in parts[name]],
    )


def _lag(facts: JobFacts) -> str:
    name = None if facts.status is None else facts.status.last_step()
    if facts.status is None or facts.has_ended:
        return "—"
    if name is None:
        return "at the end"
    output_us = facts.status.steps[name].output_us
    return "no watermark" if output_us == MIN_US else lag_text(output_us, facts.status.clock_us)


def _tiles(facts: JobFacts) -> list[tuple[str, str]]:
    rate = facts.read_per_second[-1] if facts.read_per_second else None
    tiles = [("ran for" if facts.has_ended else "running for", seconds_text(facts.age_s))]
    if facts.read:
        tiles.append(("read by sources", f"{facts.read:,}"))
    if not facts.has_ended:
        tiles.append(("sources emit", rate_text(rate)))
    if facts.is_streaming:
        tiles.append(("watermark", _lag(facts)))
        if facts.status is not None:
            tiles.append(("epoch", f"{facts.status.epoch:,}"))
            tiles.append(("partitions", _partitions(facts.status, facts.advised_partitions)))
            if size := sum(facts.status.stored_bytes.values()):
                tiles.append(("state", bytes_text(size)))
        if facts.committed_s is not None and not facts.has_ended:
            tiles.append(("last commit", f"{seconds_text(facts.now_s - facts.committed_s)} ago"))
    elif facts.segments:
        done = sum(times.ended_s is not None for times in facts.segment_times)
        tiles.append(("segments", f"{done} of {facts.segments}"))
    return tiles


def _partitions(status: EpochStatus, advised: int | None) -> str:
    if advised is None or advised == status.partitions:
        return f"{status.partitions:,}"
    return f"{status.partitions:,} ({advised:,} advised)"


def _progress(facts: JobFacts) -> str:
    if facts.is_streaming is not False or not facts.segments:
        return ""
    done = sum(times.ended_s is not None for times in facts.segment_times)
    return progress_svg(done / facts.segments, f"{done} of {facts.segments} segments are complete")


def _warnings(facts: JobFacts, query: PageQuery) -> list[WarningRow]:
    """Return the runner's warnings; of those of one step that begin alike, the newest."""
    names = {node.name for node in facts.graph.nodes}
    rows: dict[tuple[str, str], WarningRow] = {}
    for line in facts.messages:
        if line.level != WARNING or not line.is_of_runner:
            continue
        step, colon, rest = line.text.partition(": ")
        is_step = bool(colon) and step in names
        text = rest if is_step else line.text
        key = step if is_step else "", " ".join(text.split()[:4])
        previous = rows.pop(key, None)
        rows[key] = WarningRow(
            at=line.at,
            step=key[0],
            href=query.with_step(step).href("step") if is_step else "",
            text=text,
            count=1 if previous is None else previous.count + 1,
        )
    return list(reversed(rows.values()))


def _bars(facts: JobFacts) -> str:
    if not facts.epochs:
        return ""
    bars = []
    for epoch in facts.epochs:
        parts = ", ".join(
            f"{part.value} {seconds_text(took_us / 1e6)}"
            for part, took_us in zip(EpochPart, epoch.parts_us, strict=True)
        )
        bars.append((f"epoch {epoch.epoch:,}: {parts}", epoch.parts_us))
    return bars_svg(bars, PARTS)


def _longest(facts: JobFacts) -> str:
    if not facts.epochs:
        return ""
    longest = max(facts.epochs, key=lambda epoch: epoch.took_us)
    took, count = seconds_text(longest.took_us / 1e6), len(facts.epochs)
    return f"the latest {count}; the longest, epoch {longest.epoch:,}, took {took}"


def _bar_parts(facts: JobFacts) -> list[tuple[str, str, str]]:
    if not facts.epochs:
        return []
    means = [
        sum(epoch.parts_us[place] for epoch in facts.epochs) / len(facts.epochs)
        for place in range(len(EpochPart))
    ]
    return [
        (name, part.value, seconds_text(mean / 1e6))
        for name, part, mean in zip(PARTS, EpochPart, means, strict=True)
    ]


def _spans(facts: JobFacts) -> str:
    times = facts.segment_times
    if not times:
        return ""
    begin_s = times[0].began_s
    last_s = facts.now_s if facts.entered_s is None or not facts.has_ended else facts.entered_s
    end_s = max(run.ended_s or last_s for run in times)
    whole_s = max(end_s - begin_s, 1e-3)
    steps: dict[int, str] = {}
    for node in facts.graph.nodes:
        if node.segment is not None:
            steps[node.segment] = node.name.partition("/")[0]
    spans = []
    for run in times:
        ended_s = run.ended_s or last_s
        took = seconds_text(ended_s - run.began_s)
        text = f"segment {run.segment + 1} to {steps.get(run.segment, 'Spark')}: {took}"
        name = "done"
        if run.ended_s is None:
            name = "failed" if facts.has_ended else "running"
        spans.append((text, name, (run.began_s - begin_s) / whole_s, (ended_s - begin_s) / whole_s))
    return spans_svg(spans)


def _savepoints(facts: JobFacts) -> list[tuple[str, str, str, str]]:
    return [
        (
            f"{made.epoch:,}",
            made.path,
            bytes_text(made.size_bytes),
            f"{seconds_text(max(0.0, facts.now_s - made.at_s))} ago",
        )
        for made in reversed(facts.savepoints)
    ]


def _slow_tasks(facts: JobFacts) -> list[TaskRow]:
    """Return the slowest tasks; a level has several only if they are no usual ones."""
    slow = [
        (task, work)
        for work in facts.level_works
        for number, task in enumerate(work.slowest)
        if task.spent_s >= _SLOW_FROM_S and (number == 0 or task.spent_s >= 2 * work.median_s)
    ]
    slow.sort(key=lambda pair: -pair[0].spent_s)
    return [
        TaskRow(
            steps=work.steps,
            partition=f"{task.partition:,}",
            state="done" if task.is_done or facts.has_ended else "running",
            spent=seconds_text(task.spent_s),
            usual=f"{seconds_text(work.median_s)} of {work.tasks:,}",
            rows=f"{task.rows:,}",
            key="" if task.largest is None else key_text(task, task.largest),
        )
        for task, work in slow[:_MAX_TASKS]
    ]
