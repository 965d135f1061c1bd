"""Steps and composites as the page shows them: in the graph, in the table, and in the panel."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from beam_spark_runner.core.time import MIN_US
from beam_spark_runner.job.page.drawing import DrawnEdge, DrawnNode, graph_svg
from beam_spark_runner.job.page.folding import FoldedGraph, FoldedNode, ancestors, fold
from beam_spark_runner.job.page.page_query import EVERYTHING, EveryPath, PageQuery
from beam_spark_runner.job.page.step_states import most_important, step_state
from beam_spark_runner.job.page.texts import (
    bytes_text,
    count_text,
    lag_text,
    rate_text,
    seconds_text,
)
from beam_spark_runner.observing.epoch_status import LevelState
from beam_spark_runner.observing.job_facts import JobFacts, StepFigures
from beam_spark_runner.observing.message_lines import ERROR, WARNING, MessageLine
from beam_spark_runner.observing.step_graph import EdgeKind, StepNode
from beam_spark_runner.observing.warnings import event_time_text

MAX_DRAWN = 1_500
"""The most nodes of a graph, and rows of a table, that a browser still shows quickly."""
_NOTHING = StepFigures()
_LINES = 20
_LATE = "beam_spark_runner:dropped_due_to_lateness"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """A line of the table of steps."""

    path: str
    href: str
    kind: str
    state: str
    taken: str
    emitted: str
    rate: str
    busy: str
    lag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPanel:
    """What is known of one step or composite.

    Attributes:
        path: Its full name.
        kind, state: In a word or two.
        facts: Pairs of a name and a value.
        metrics: The users' metrics, likewise.
        samples: Elements that it has emitted lately, as text, the newest first.
        parts: The steps of a composite; empty: it is one step.
        lines: Its latest log lines.
        close: Where a click leads that closes the panel.
        fold: Where a click leads that folds the composite around it. "": there is none unfolded.
        fold_path: The name of that composite.
    """

    path: str
    kind: str
    state: str
    facts: Sequence[tuple[str, str]]
    metrics: Sequence[tuple[str, str]]
    samples: Sequence[str]
    parts: Sequence[StepRow]
    lines: Sequence[MessageLine]
    close: str
    fold: str
    fold_path: str


def folded_graph(facts: JobFacts, query: PageQuery) -> FoldedGraph:
    """Return the graph with the composites that the viewer has unfolded."""
    everything = EVERYTHING in query.unfolded
    return fold(facts.graph, EveryPath() if everything else frozenset(query.unfolded))


def drawn_graph(facts: JobFacts, query: PageQuery) -> str:
    """Draw the graph of a job as SVG. "": it has too many nodes, or none."""
    graph = folded_graph(facts, query)
    if not 0 < len(graph.nodes) <= MAX_DRAWN:
        return ""
    nodes = [_drawn_node(facts, query, node) for node in graph.nodes]
    edges = []
    for edge in graph.edges:
        counts = [facts.collections[id_] for id_ in edge.collections if id_ in facts.collections]
        rates = [facts.rates[id_] for id_ in edge.collections if id_ in facts.rates]
        label = count_text(sum(counts)) if counts else ""
        if facts.is_streaming and rates and not facts.has_ended:
            label = rate_text(sum(rates))
        kind = edge.kind.value.replace(" ", "-")
        edges.append(DrawnEdge(source=edge.source, target=edge.target, kind=kind, label=label))
    return graph_svg(nodes, edges)


def _drawn_node(facts: JobFacts, query: PageQuery, node: FoldedNode) -> DrawnNode:
    members = [facts.graph.nodes[item] for item in node.members]
    figures = [facts.figures.get(item.name, _NOTHING) for item in members]
    state = most_important([step_state(facts, item) for item in members])
    kind = f"{len(members)} steps" if node.is_composite else members[0].kind
    last = figures[-1]
    if facts.is_streaming and not facts.has_ended and last.per_second:
        detail = f"{rate_text(last.per_second)} · {kind}"
    elif last.emitted:
        detail = f"{count_text(last.emitted)} out · {kind}"
    else:
        detail = kind
    around = ancestors(node.path)
    return DrawnNode(
        path=node.path,
        label=node.path[len(around[-1]) + 1 :] if around else node.path,
        detail=detail,
        state=state.value,
        href=query.with_step(node.path).href("step"),
        unfold=query.unfolding(node.path).href("graph") if node.is_composite else "",
        share=sum(item.busy_share for item in figures),
        is_chosen=query.step == node.path,
    )


def step_rows(facts: JobFacts, query: PageQuery) -> Sequence[StepRow]:
    """Return the table of the first steps that have the text that the viewer looks for."""
    text = query.find.lower()
    matching = (node for node in facts.graph.nodes if text in node.name.lower())
    return [_row(facts, query, node) for node in islice(matching, MAX_DRAWN)]


def _row(facts: JobFacts, query: PageQuery, node: StepNode) -> StepRow:
    figures, status = facts.figures.get(node.name, _NOTHING), facts.steps.get(node.name)
    now_us = 0 if facts.status is None else facts.status.clock_us
    return StepRow(
        path=node.name,
        href=query.with_step(node.name).href("step"),
        kind=node.kind,
        state=step_state(facts, node).value,
        taken=count_text(figures.taken),
        emitted=count_text(figures.emitted),
        rate=rate_text(figures.per_second),
        busy=f"{figures.busy_share:.0%}" if figures.busy_share else "—",
        lag="—" if status is None else lag_text(status.output_us, now_us),
    )


def step_panel(facts: JobFacts, query: PageQuery) -> StepPanel | None:
    """Return the panel of the step that the viewer has chosen. None: there is no such step."""
    path = query.step
    members = [
        node
        for node in facts.graph.nodes
        if path and (node.name == path or node.name.startswith(f"{path}/"))
    ]
    if not members:
        return None
    is_step = len(members) == 1 and members[0].name == path
    unfolded = [member for member in ancestors(path) if member in query.unfolded]
    around = unfolded[-1] if unfolded else ""
    state = most_important([step_state(facts, member) for member in members])
    names = {member.name for member in members}
    return StepPanel(
        path=path,
        kind=members[0].kind if is_step else f"composite of {len(members)} steps",
        state=state.value,
        facts=_facts(facts, members, path),
        metrics=[
            pair for member in members for pair in facts.figures.get(member.name, _NOTHING).metrics
        ],
        samples=_samples(facts, members),
        parts=[] if is_step else [_row(facts, query, member) for member in members[:MAX_DRAWN]],
        lines=[
            line
            for line in facts.messages
            if line.step in names
            or (line.level in (ERROR, WARNING) and line.text.startswith(f"{path}: "))
        ][-_LINES:],
        close=query.with_step("").href("graph"),
        fold=query.folding(around).with_step(around).href("graph") if around else "",
        fold_path=around,
    )


def _facts(facts: JobFacts, members: Sequence[StepNode], path: str) -> list[tuple[str, str]]:
    inside = {member.id for member in members}
    entering = {
        edge.collection
        for edge in facts.graph.edges
        if edge.consumer in inside
        and edge.producer not in inside
        and edge.kind is not EdgeKind.SIDE_INPUT
    }
    figures = [facts.figures.get(member.name, _NOTHING) for member in members]
    last = figures[-1]
    elements_in = sum(facts.collections.get(id_, 0) for id_ in entering)
    pairs = [
        ("elements in", f"{elements_in:,}"),
        ("elements out", f"{last.emitted:,}"),
        ("bytes out, estimated", bytes_text(last.emitted_bytes)),
        ("rate out", rate_text(last.per_second)),
        ("busy", _busy(figures)),
    ]
    pairs += _in_epochs(facts, members)
    sizes = [
        bytes_text(size)
        for steps, size in (facts.status.stored_bytes if facts.status else {}).items()
        if any(member.name in steps.split(", ") for member in members)
    ]
    if sizes:
        pairs.append(("state of its level", ", ".join(sizes)))
    for steps, state in (facts.status.stored_state if facts.status else {}).items():
        if any(member.name in steps.split(", ") for member in members):
            pairs += _stored(state, facts)
    late = [value for member in figures for name, value in member.metrics if name == _LATE]
    if late:
        pairs.append(("late, dropped", ", ".join(late)))
    return pairs


def _stored(state: LevelState, facts: JobFacts) -> list[tuple[str, str]]:
    pairs = [("records of its level", f"{state.records:,}")]
    if state.next_event_us is not None:
        text = f"at the watermark {event_time_text(state.next_event_us)}"
        pairs.append(("next timer of its level", text))
    if state.next_clock_us is not None and facts.status is not None:
        wait_s = max(0, state.next_clock_us - facts.status.clock_us) / 1e6
        text = f"{seconds_text(wait_s)} after the last epoch" if wait_s else "due"
        pairs.append(("next timer in processing time", text))
    return pairs


def _samples(facts: JobFacts, members: Sequence[StepNode]) -> list[str]:
    """Return samples of what leaves the last step; of several outputs, all."""
    texts = [
        text for output in members[-1].outputs for text in reversed(facts.samples.get(output, ()))
    ]
    return list(dict.fromkeys(texts))


def _busy(figures: Sequence[StepFigures]) -> str:
    text = seconds_text(sum(step.busy_ms for step in figures) / 1e3)
    share = sum(step.busy_share for step in figures)
    return f"{text}, lately {share:.0%} of all steps" if share else text


def _in_epochs(facts: JobFacts, members: Sequence[StepNode]) -> list[tuple[str, str]]:
    pairs = []
    now_us = 0 if facts.status is None else facts.status.clock_us
    statuses = [facts.steps[member.name] for member in members if member.name in facts.steps]
    if statuses:
        output_us = min(member.output_us for member in statuses)
        pairs.append(
            ("input watermark", lag_text(min(member.input_us for member in statuses), now_us))
        )
        pairs.append(("output watermark", lag_text(output_us, now_us)))
        if output_us > MIN_US:
            pairs.append(("event time", event_time_text(output_us)))
    for status in statuses:
        if status.hold is not None:
            hold_text = f"{status.hold.holder.value}, {lag_text(status.hold.at_us, now_us)}"
            pairs.append(("held by", hold_text))
        if status.restrictions is not None:
            pairs.append(("restrictions stored", f"{status.restrictions:,}"))
            backlog = "not known" if status.backlog is None else f"{status.backlog:,.0f}"
            pairs.append(("backlog", backlog))
        if status.blocked is not None:
            pairs.append(("waits for", ", ".join(status.blocked.producers)))
        if status.left:
            pairs.append(("left for the next epoch", f"{status.left:,}"))
    return pairs
