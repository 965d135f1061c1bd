"""Reads the text that ``graph.dump`` writes back into a graph."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace

from beam_spark_runner.core.ids import (
    CoderId,
    EnvironmentId,
    PCollectionId,
    TransformId,
    WindowingId,
)
from beam_spark_runner.graph import dump
from beam_spark_runner.graph.facts import CoderTable
from beam_spark_runner.graph.model import (
    Coder,
    Environment,
    FusedStage,
    Graph,
    PCollection,
    TimestampCombiner,
    Transform,
    Windowing,
)

_URNS = {kind: urn for urn, kind in dump.KINDS.items()}
_WINDOW_FNS = {kind: urn for urn, kind in dump.WINDOW_FNS.items()}
_FLAGS = {word: flag for flag, word in dump.FLAGS.items()}
_WORD = r'(?:"(?:[^"\\]|\\.)*"|[^\s,()":=]+)'
_LINE = re.compile(rf"(?P<id>{_WORD}): (?P<kind>{_WORD})\((?P<inputs>.*?)\)(?P<rest>.*)")
_OUTPUTS = re.compile(rf" -> (?P<outputs>(?:{_WORD}=)?{_WORD}(?:, (?:{_WORD}=)?{_WORD})*)")


def parse(text: str) -> Graph:
    """Build the graph that ``text`` describes; its payloads are the transforms' ids."""
    return _Reader().read(line.strip() for line in text.splitlines())


class _Reader:
    def __init__(self) -> None:
        self.coders = CoderTable({})
        self.transforms: dict[TransformId, Transform] = {}
        self.pcollections: dict[PCollectionId, PCollection] = {}
        self.windowings: dict[WindowingId, Windowing] = {}
        self.environments: dict[EnvironmentId, Environment] = {}
        self.requirements: list[str] = []
        self.stages: list[FusedStage] = []

    def read(self, lines: Iterable[str]) -> Graph:
        described = []
        for line in filter(None, lines):
            if line.startswith("requires "):
                self.requirements.append(line.removeprefix("requires "))
            elif line.startswith("stage "):
                self.stages.append(self._stage(line))
            elif " :: " in line:
                described.append(line)
            else:
                self._transform(line)
        for line in described:
            collection, _, text = line.partition(" :: ")
            id_ = PCollectionId(_bare(collection))
            del self.pcollections[id_]  # so that they come in the order of the text
            self._collection(id_, text)
        return Graph(
            transforms=self.transforms,
            pcollections=self.pcollections,
            coders=self.coders.coders,
            windowings=self.windowings,
            environments=self.environments,
            requirements=tuple(self.requirements),
            stages=tuple(self.stages),
        )

    def _transform(self, line: str) -> None:
        match = _LINE.fullmatch(line)
        assert match, f"not a transform: {line!r}"
        id_, kind, rest = _bare(match["id"]), _bare(match["kind"]), match["rest"]
        inputs = [part for part in match["inputs"].split(", ") if part]
        main = _named([part for part in inputs if " as " not in part], "in")
        side_parts = [part.partition(" as ") for part in inputs if " as " in part]
        side = _named([part[0] for part in side_parts], "side")
        patterns = [f"beam:side_input:{part[2]}:v1" for part in side_parts]
        outputs: dict[str, PCollectionId] = {}
        found = _OUTPUTS.match(rest)
        if found:
            outputs = _named(found["outputs"].split(", "), "out")
            rest = rest[found.end() :]
        transform = Transform(
            name=id_,
            urn=_URNS.get(kind, kind),
            payload=id_.encode(),
            inputs=main | side,
            outputs=outputs,
            side_inputs=dict(zip(side, patterns, strict=True)),
        )
        for word in rest.split():
            transform = self._with_word(transform, word)
        self.transforms[TransformId(id_)] = transform
        for collection in (*main.values(), *side.values(), *outputs.values()):
            if collection not in self.pcollections:
                self._collection(collection, "bytes")

    def _with_word(self, transform: Transform, word: str) -> Transform:
        if word in _FLAGS:
            return replace(transform, **{_FLAGS[word]: True})  # type: ignore[arg-type]
        if word.startswith("@"):
            return replace(transform, environment=self._environment(word))
        key, _, value = word.partition("=")
        if key == "name":
            return replace(transform, name=_bare(value))
        if key == "accumulator":
            return replace(transform, accumulator_coder=self._coder(value))
        if key == "restriction":
            return replace(transform, restriction_coder=self._coder(value))
        if key == "state":
            return replace(transform, state_ids=tuple(value.split(",")))
        assert key == "timers", word
        return replace(transform, timer_families=tuple(value.split(",")))

    def _environment(self, word: str) -> EnvironmentId:
        id_ = EnvironmentId(word.removeprefix("@"))
        self.environments[id_] = Environment(urn="beam:env:embedded_python:v1")
        return id_

    def _collection(self, id_: PCollectionId, text: str) -> None:
        coder, *words = text.split(", ")
        is_bounded = "unbounded" not in words
        windowing = next((word for word in words if word != "unbounded"), "global")
        self.pcollections[id_] = PCollection(
            name=id_,
            coder=self._coder(coder),
            windowing=self._windowing(windowing),
            is_bounded=is_bounded,
        )

    def _windowing(self, text: str) -> WindowingId:
        id_ = WindowingId(text)
        kind, *words = text.split()
        facts = dict(word.split("=") for word in words if "=" in word)
        self.windowings[id_] = Windowing(
            coded=text.encode(),
            window_fn_urn=_WINDOW_FNS.get(kind, _bare(kind)),
            window_coder=self.coders.add(Coder(urn=_window_coder(kind))),
            window_fn_parameters=_bare(facts.get("by", "")),
            merges="merging" in words,
            trigger_is_default="trigger" not in facts,
            trigger=facts.get("trigger", "default"),
            accumulates="accumulating" in words,
            timestamp_combiner=TimestampCombiner(facts.get("at", "end_of_window")),
        )
        return id_

    def _coder(self, text: str) -> CoderId:
        kind, _, inner = text.partition("<")
        parts, depth, start = [], 0, 0
        for position, letter in enumerate(inner):
            if letter == "<":
                depth += 1
            elif letter in ",>":
                if depth == 0:
                    parts.append(inner[start:position])
                    start = position + 1
                depth -= letter == ">"
        components = tuple(self._coder(part) for part in parts)
        return self.coders.add(Coder(urn=f"beam:coder:{kind}:v1", components=components))

    def _stage(self, line: str) -> FusedStage:
        head, _, rest = line.partition(": ")
        body, _, environment = rest.partition("@")
        names, _, outputs = f" {body} ".partition(" -> ")
        return FusedStage(
            input=PCollectionId(_bare(head.split(" at ")[1])),
            transforms=tuple(TransformId(name) for name in names.split()),
            outputs=tuple(PCollectionId(name) for name in outputs.replace(",", "").split()),
            environment=self._environment(environment) if environment else None,
        )


def _window_coder(kind: str) -> str:
    if kind == "global":
        return "beam:coder:global_window:v1"
    return f"beam:coder:{'interval' if kind in _WINDOW_FNS else kind}_window:v1"


def _named(parts: Iterable[str], default: str) -> dict[str, PCollectionId]:
    texts = list(parts)
    names = {}
    for number, text in enumerate(texts):
        local_name, _, collection = text.rpartition("=")
        alone = len(texts) == 1 and default != "side"
        names[_bare(local_name) or (default if alone else f"{default}{number}")] = PCollectionId(
            _bare(collection)
        )
    return names


def _bare(text: str) -> str:
    return json.loads(text) if text.startswith('"') else text
