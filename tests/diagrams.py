"""Diagrams of the documentation that come from code, as text for Mermaid.

A comment in a page, such as ``<!-- make diagrams: plan -->``, names the diagram that follows it.
``python -m tests.diagrams`` writes them into the pages, and ``tests/test_diagrams.py`` compares.
"""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from beam_spark_runner import show_plan
from beam_spark_runner.plan.explain import Explainer
from beam_spark_runner.plan.model import Delivery, Plan
from tests.test_layers import LAYERS, PURE

_ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(
    r"(<!-- make diagrams: (\w+) -->\n)```mermaid\n.*?^```$", re.DOTALL | re.MULTILINE
)


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page that has such diagrams, with the text that it should have."""
    diagrams = {"plan": plan_diagram(example()), "layers": layer_diagram()}
    texts = {name: "\n".join(lines) for name, lines in diagrams.items()}
    for page in (_ROOT / "README.md", _ROOT / "docs" / "architecture.md"):
        yield (
            page,
            _BLOCK.sub(lambda at: f"{at[1]}```mermaid\n{texts[at[2]]}\n```", page.read_text()),
        )


def example() -> Plan:
    """Return the plan of a small pipeline that joins two inputs."""
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=SparkPortableRunner"]))
    amounts = (
        pipeline
        | "Orders" >> beam.io.ReadFromText("orders.csv", validate=False)
        | "Amounts" >> beam.Map(_pair)
        | "Totals" >> beam.CombinePerKey(sum)
    )
    names = (
        pipeline
        | "Customers" >> beam.io.ReadFromText("customers.csv", validate=False)
        | "Names" >> beam.Map(_pair)
    )
    _ = (amounts, names) | "Join" >> beam.CoGroupByKey() | "Lines" >> beam.Map(print)
    return show_plan(pipeline).plan


def plan_diagram(plan: Plan) -> Iterator[str]:
    """Yield the lines of a flowchart: Spark jobs, their Beam stages, and the exchanges."""
    words = Explainer(plan)
    yield "flowchart TB"
    for segment in plan.segments:
        yield f'  subgraph segment{segment.id} ["{words.title(segment)}"]'
        yield "    direction TB"  # Mermaid turns the only part of a diagram, and makes it small
        for id_ in itertools.chain.from_iterable(level.stages for level in segment.levels):
            steps = (plan.graph.transforms[each].step for each in plan.stages[id_].transforms)
            text = "<br/>".join(step for step, _ in itertools.groupby(steps))
            yield f'    stage{id_}["{text}"]'
        yield "  end"
    for stage in plan.stages.values():
        for target in itertools.chain.from_iterable(
            plan.consumers.get(each, ()) for each in stage.outputs
        ):
            destination = plan.destinations[target]
            how = destination.delivery
            label = "" if how is Delivery.POINTWISE else f'|"{how.value}"|'
            yield f"  stage{stage.id} -->{label} stage{destination.stage}"


def layer_diagram() -> Iterator[str]:
    """Yield the lines of a flowchart: imports go along the arrows only."""
    yield '%%{init: {"flowchart": {"rankSpacing": 16, "padding": 6}}}%%'
    yield "flowchart TB"
    for rank, names in enumerate(LAYERS):
        kind = ":::pure" if PURE.issuperset(names) else ""
        yield f'  layer{rank}["{" · ".join(names)}"]{kind}'
    yield "  " + " --> ".join(f"layer{rank}" for rank in range(len(LAYERS)))
    yield "  classDef pure fill:#dcfce7,stroke:#059669,color:#065f46"


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(",")
    return name, value


if __name__ == "__main__":
    for path, text in pages():
        path.write_text(text)
