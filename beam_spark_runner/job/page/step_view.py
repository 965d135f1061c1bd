"""Steps and composites as the page shows them: in the graph, in the table, and in the panel."""

from collections.abc import Sequence
from dataclasses import dataclass

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
from beam_spark_runner.observing.job_facts import JobFacts, StepFigures
from beam_spark_runner.observing.message_lines import ERROR, WARNING, MessageLine
from beam_spark_runner.observing.step_graph import EdgeKind, StepNode
from beam_spark_runner.observing.warnings import event_time_text

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
    """Draw the graph of a job as SVG."""
    graph = folded_graph(facts, query)
    nodes = [_drawn_node(facts, query, each) for each in graph.nodes]
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
    members = [facts.graph.nodes[each] for each in node.members]
    figures = [facts.figures.get(each.name, _NOTHING) for each in members]
    state = most_important([step_state(facts, each) for each in members])
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
        share=sum(each.busy_share for each in figures),
        is_chosen=query.step == node.path,
    )


def step_rows(facts: JobFacts, query: PageQuery) -> Sequence[StepRow]:
    """Return the table of all steps that have the text that the viewer looks for."""
    wanted = query.find.lower()
    return [_row(facts, query, node) for node in facts.graph.nodes if wanted in node.name.lower()]


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
    unfolded = [each for each in ancestors(path) if each in query.unfolded]
    around = unfolded[-1] if unfolded else ""
    state = most_important([step_state(facts, each) for each in members])
    names = {each.name for each in members}
    return StepPanel(
        path=path,
        kind=members[0].kind if is_step else f"composite of {len(members)} steps",
        state=state.value,
        facts=_facts(facts, members, path),
        metrics=[
            pair for each in members for pair in facts.figures.get(each.name, _NOTHING).metrics
        ],
        parts=[] if is_step else [_row(facts, query, each) for each in members],
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
    inside = {each.id for each in members}
    entering = {
        edge.collection
        for edge in facts.graph.edges
        if edge.consumer in inside
        and edge.producer not in inside
        and edge.kind is not EdgeKind.SIDE_INPUT
    }
    figures = [facts.figures.get(each.name, _NOTHING) for each in members]
    last = figures[-1]
    taken = sum(facts.collections.get(id_, 0) for id_ in entering)
    found = [
        ("elements in", f"{taken:,}"),
        ("elements out", f"{last.emitted:,}"),
        ("bytes out, estimated", bytes_text(last.emitted_bytes)),
        ("rate out", rate_text(last.per_second)),
        ("busy", _busy(figures)),
    ]
    found += _in_epochs(facts, members)
    stored = [
        bytes_text(size)
        for steps, size in (facts.status.stored_bytes if facts.status else {}).items()
        if any(each.name in steps.split(", ") for each in members)
    ]
    if stored:
        found.append(("state of its level", ", ".join(stored)))
    late = [value for each in figures for name, value in each.metrics if name == _LATE]
    if late:
        found.append(("late, dropped", ", ".join(late)))
    return found


def _busy(figures: Sequence[StepFigures]) -> str:
    text = seconds_text(sum(each.busy_ms for each in figures) / 1e3)
    share = sum(each.busy_share for each in figures)
    return f"{text}, lately {share:.0%} of all steps" if share else text


def _in_epochs(facts: JobFacts, members: Sequence[StepNode]) -> list[tuple[str, str]]:
    found = []
    now_us = 0 if facts.status is None else facts.status.clock_us
    known = [facts.steps[each.name] for each in members if each.name in facts.steps]
    if known:
        output_us = min(each.output_us for each in known)
        found.append(("input watermark", lag_text(min(each.input_us for each in known), now_us)))
        found.append(("output watermark", lag_text(output_us, now_us)))
        if output_us > MIN_US:
            found.append(("event time", event_time_text(output_us)))
    for status in known:
        if status.hold is not None:
            held = f"{status.hold.holder.value}, {lag_text(status.hold.at_us, now_us)}"
            found.append(("held by", held))
        if status.restrictions is not None:
            found.append(("restrictions stored", f"{status.restrictions:,}"))
            backlog = "not known" if status.backlog is None else f"{status.backlog:,.0f}"
            found.append(("backlog", backlog))
        if status.blocked is not None:
            found.append(("waits for", ", ".join(status.blocked.producers)))
        if status.left:
            found.append(("left for the next epoch", f"{status.left:,}"))
    return found
