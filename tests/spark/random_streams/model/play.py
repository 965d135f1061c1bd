"""Plays a script to a pipeline of the model."""

from collections import Counter
from typing import Any, Protocol

from apache_beam.transforms.window import WindowFn
from apache_beam.utils.timestamp import Timestamp

from tests.spark.random_streams.model.groups import Groups
from tests.spark.random_streams.model.held import InOrder, Stable
from tests.spark.random_streams.model.lookups import LookUps
from tests.spark.random_streams.model.states import States
from tests.spark.random_streams.model.times import END, START, Element, Now
from tests.spark.random_streams.model.triggers import continued
from tests.spark.random_streams.recipes import Recipe, Step
from tests.spark.random_streams.running import Dropped, Given, Outputs, label_of
from tests.spark.random_streams.scripts import MAIN, SIDE, Add, Clock, Script, Timed, Watermark
from tests.spark.random_streams.stateful import STATEFUL
from tests.spark.random_streams.steps import GROUPINGS, rekey, time_beyond
from tests.spark.random_streams.windowings import Windowing, beams_window_fn


class _Node(Protocol):
    @property
    def dropped(self) -> int: ...

    def happens(self, elements: list[Element], now: Now) -> Any: ...

    def hold(self) -> int: ...


class _Passes:
    """A step that has no memory."""

    dropped = 0

    def __init__(self, kind: str, windowing: Windowing) -> None:
        self._kind, self._windowing = kind, windowing

    def happens(self, elements: list[Element], now: Now) -> list[Element]:
        match self._kind:
            case "window":
                return [new for each in elements for new in windowed(each, self._windowing)]
            case "rekey":
                return [each._replace(key=rekey(each.key, ())[0]) for each in elements]
            case "beyond":
                return [each._replace(at=_beyond(each)) for each in elements]
        return elements

    def hold(self) -> int:
        return END


def windowed(element: Element, windowing: Windowing) -> list[Element]:
    """Return an element in each of the windows that it is assigned to."""
    window_fn = beams_window_fn(windowing.window_fn)
    context = WindowFn.AssignContext(Timestamp(micros=element.at * 1000), window=element.window)
    return [element._replace(window=window) for window in window_fn.assign(context)]


def _beyond(element: Element) -> int:
    at = time_beyond(element.numbers, Timestamp(micros=element.at * 1000), element.window)
    return int(at.micros) // 1000


def outputs_by_model(script: Script, recipes: dict[int, Recipe]) -> Outputs:
    """Return what each step of each pipeline gives."""
    return play(script, recipes)[0]


def play(script: Script, recipes: dict[int, Recipe]) -> tuple[Outputs, Dropped]:
    """Return what each step of each pipeline gives, and how many elements come too late for it."""
    found: Outputs = {}
    dropped: Dropped = Counter()
    for number, recipe in recipes.items():
        played = _Played(recipe)
        for event in (*script, Watermark(MAIN, END), Watermark(SIDE, END)):
            played.happens(event)
        for place, step in enumerate(recipe.steps):
            label = label_of(number, place)
            dropped[label] = played.nodes[place].dropped
            if step.kind != "window":
                found[label] = Counter(_given(each, step) for each in played.outputs[place])
    return found, dropped


def _given(element: Element, step: Step) -> Given:
    pane = element.pane if step.kind in GROUPINGS else ()
    return Given(element.key, element.numbers, element.at, str(element.window), pane)


class _Played:
    """One pipeline."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self.nodes: list[_Node] = []
        self._watermarks = {MAIN: START, SIDE: START}
        self._inputs = [START] * len(recipe.steps)  # watermarks
        self._clock = 0
        self._aside = START
        self.outputs: list[list[Element]] = [[] for _ in recipe.steps]
        windowing = Windowing(("global",))
        trigger = windowing.trigger
        for step in recipe.steps:
            lateness = windowing.lateness * 1000
            if step.kind == "window":
                windowing = step.args[0]
                trigger = windowing.trigger
                self.nodes.append(_Passes(step.kind, windowing))
            elif step.kind in GROUPINGS:
                key_of = (lambda _: "all") if step.kind == "concat all" else str
                self.nodes.append(Groups(windowing, trigger, key_of))
                trigger = continued(trigger)
            elif step.kind in STATEFUL or step.kind == "in boxes":
                self.nodes.append(States(step.kind, lateness))
            elif step.kind == "stable":
                self.nodes.append(Stable())
            elif step.kind == "in order":
                self.nodes.append(InOrder(lateness))
            elif step.kind == "look up":
                self.nodes.append(LookUps(step.args[0], lateness))
            else:
                self.nodes.append(_Passes(step.kind, windowing))

    def happens(self, event: Any) -> None:
        """Let an event happen, and all that follows from it."""
        added: dict[str, list[Element]] = {MAIN: [], SIDE: []}
        match event:
            case Add(tag, elements):
                added[tag] = [_element(each) for each in elements]
            case Watermark(tag, to):
                self._watermarks[tag] = to if to >= END else to * 1000
            case Clock(by):
                self._clock += by * 1000
        while self._epoch(added):
            added = {MAIN: [], SIDE: []}

    def _epoch(self, added: dict[str, list[Element]]) -> bool:
        """Run one epoch; return whether another one is due at once."""
        elements = [each for tag in self._recipe.sources for each in added[tag]]
        watermark = min(self._watermarks[tag] for tag in self._recipe.sources)
        for place, node in enumerate(self.nodes):
            if isinstance(node, InOrder):
                watermark = max(node.passed(watermark), self._inputs[place])
            now = Now(self._inputs[place], watermark, self._clock)
            self._inputs[place] = watermark
            elements = [*node.happens(elements, now)]
            self.outputs[place] += elements
            watermark = min(watermark, node.hold())
            if place + 1 < len(self.nodes):
                watermark = max(watermark, self._inputs[place + 1])
        aside = Now(self._aside, self._watermarks[SIDE], self._clock)
        self._aside = aside.watermark
        is_due = any(isinstance(node, Stable) and node.is_due for node in self.nodes)
        for step, node in zip(self._recipe.steps, self.nodes, strict=True):
            if isinstance(node, LookUps):
                some = [new for each in added[SIDE] for new in windowed(each, step.args[0])]
                is_due |= node.gather(some, aside)
        return is_due


def _element(timed: Timed) -> Element:
    return Element(timed.key, (timed.number,), timed.at * 1000, None)
