"""Where Beam's runners give something else for a pipeline that streams.

docs/conformance.md says of each what they do, who is right, and which line of Beam's model says so.
``DIRECT`` is Beam's in-process runner for a TestStream; FnApiRunner refuses every TestStream.
"""

from collections.abc import Callable
from dataclasses import dataclass

from apache_beam.transforms.window import WindowFn
from apache_beam.utils.timestamp import Timestamp

from tests.spark.random_streams.recipes import Recipe
from tests.spark.random_streams.scripts import Add, Script, Watermark, has_late, is_one_by_one
from tests.spark.random_streams.stateful import STATEFUL
from tests.spark.random_streams.windowings import DEFAULT, Trigger, beams_window_fn, counts, waits

DIRECT, PRISM = "DirectRunner", "Prism"
_BOTH = (DIRECT, PRISM)
_STATEFUL = {*STATEFUL, "in boxes"}


@dataclass(frozen=True)
class Disagreement:
    """A difference.

    Attributes:
        name: in the table of docs/conformance.md.
        others: which of Beam's runners may give something else than this one.
        applies: whether it may show in a pipeline and script.
    """

    name: str
    others: tuple[str, ...]
    applies: Callable[[Recipe, Script], bool]


def _triggers(recipe: Recipe) -> list[Trigger]:
    return [trigger for _, trigger in recipe.groupings]


def _composes(trigger: Trigger) -> bool:
    """Whether it is something else than the default one, or AfterWatermark with its parts."""
    return trigger != DEFAULT and trigger[0] != "watermark"


def _leaves(trigger: Trigger) -> bool:
    """Whether elements may be left for which its part after the end of a window never fires."""
    return trigger[0] == "watermark" and trigger[2] not in (None, ("count", 1))


def _comes_at_the_last_moment(recipe: Recipe, script: Script) -> bool:
    """Whether an element arrives when the watermark is at the end of its window, plus lateness."""
    windowing = recipe.windowings[0]
    watermarks = dict.fromkeys(recipe.sources, 0)
    for event in script:
        if isinstance(event, Watermark) and event.tag in watermarks:
            watermarks[event.tag] = event.to
        elif isinstance(event, Add) and event.tag in watermarks:
            for timed in event.elements:
                context = WindowFn.AssignContext(Timestamp(timed.at))
                windows = beams_window_fn(windowing.window_fn).assign(context)
                ends = {each.end.micros // 1_000_000 + windowing.lateness for each in windows}
                if min(watermarks.values()) in ends:
                    return True
    return False


BUNDLES = Disagreement(
    "elements that arrive together",
    (PRISM,),
    lambda recipe, script: not is_one_by_one(script) and any(map(counts, _triggers(recipe))),
)
SECOND = Disagreement(
    "panes that arrive together",
    _BOTH,
    lambda recipe, _: any(map(counts, _triggers(recipe)[1:])),
)
DISAGREEMENTS = (
    BUNDLES,
    SECOND,
    Disagreement(
        "elements and timers",
        (PRISM,),
        lambda recipe, _: bool(recipe.kinds & _STATEFUL),
    ),
    Disagreement(
        "two outputs of a TestStream",
        (PRISM,),
        lambda recipe, _: len(recipe.sources) > 1,
    ),
    Disagreement(
        "sessions",
        (PRISM,),
        lambda recipe, _: any(windowing.merges for windowing in recipe.windowings),
    ),
    Disagreement(
        "allowed lateness",
        (PRISM,),
        lambda recipe, _: any(windowing.lateness for windowing in recipe.windowings),
    ),
    Disagreement("late elements", (PRISM,), lambda _, script: has_late(script)),
    Disagreement(
        "timestamps of late elements",
        (DIRECT,),
        lambda recipe, script: (
            has_late(script) and any(windowing.at != "end" for windowing in recipe.windowings)
        ),
    ),
    Disagreement("the last moment of lateness", (DIRECT,), _comes_at_the_last_moment),
    Disagreement(
        "late elements and sessions",
        _BOTH,
        lambda recipe, script: (
            has_late(script) and any(windowing.merges for windowing in recipe.windowings)
        ),
    ),
    Disagreement(
        "late elements of stateful steps",
        _BOTH,
        lambda recipe, script: has_late(script) and bool(recipe.kinds & _STATEFUL),
    ),
    Disagreement(
        "empty on-time panes",
        (PRISM,),
        lambda recipe, _: any(
            trigger[0] == "watermark" and trigger[1] and not windowing.accumulates
            for windowing, trigger in recipe.groupings
        ),
    ),
    Disagreement("Reshuffle", (DIRECT,), lambda recipe, _: "reshuffle" in recipe.kinds),
    Disagreement(
        "output of timers",
        (DIRECT,),
        lambda recipe, _: any(step.kind in _STATEFUL for step in recipe.steps[:-1]),
    ),
    Disagreement(
        "the default windowing",
        (DIRECT,),
        lambda recipe, _: any(
            windowing.window_fn == ("global",) and trigger == DEFAULT
            for windowing, trigger in recipe.groupings
        ),
    ),
    Disagreement(
        "AfterProcessingTime",
        _BOTH,
        lambda recipe, _: any(map(waits, _triggers(recipe))),
    ),
    Disagreement(
        "composite triggers",
        _BOTH,
        lambda recipe, _: any(_composes(each) or _leaves(each) for each in _triggers(recipe)),
    ),
    Disagreement(
        "timestamps of panes after an early one",
        _BOTH,
        lambda recipe, _: (
            any(windowing.at != "end" for windowing in recipe.windowings)
            and any(trigger != DEFAULT for trigger in _triggers(recipe))
        ),
    ),
    Disagreement(
        "processing-time timers",
        _BOTH,
        lambda recipe, _: bool(recipe.kinds & {"on the clock", "polling"}),
    ),
    Disagreement("side inputs", _BOTH, lambda recipe, _: "look up" in recipe.kinds),
    Disagreement(
        "stable and sorted input",
        _BOTH,
        lambda recipe, _: bool(recipe.kinds & {"stable", "in order"}),
    ),
    Disagreement("after the end of a window", _BOTH, lambda recipe, _: "beyond" in recipe.kinds),
)


def agrees(other: str, recipe: Recipe, script: Script) -> bool:
    """Whether a runner of Beam's must give the same for a pipeline, pane by pane."""
    return not any(other in each.others and each.applies(recipe, script) for each in DISAGREEMENTS)


def agrees_in_unions(other: str, recipe: Recipe, script: Script) -> bool:
    """Whether it need not give the same panes, but all of a window's must have the same together.

    So it is if nothing is open but how elements are divided into bundles, and no trigger ends.
    """
    applying = [
        each for each in DISAGREEMENTS if other in each.others and each.applies(recipe, script)
    ]
    return bool(recipe.groupings) and applying in ([BUNDLES], [BUNDLES, SECOND])
