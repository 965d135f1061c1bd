"""All kinds of steps that random pipelines are made of."""

from functools import partial

from tests.spark.random_pipelines import boxes, coded, confused, lent, odd
from tests.spark.random_pipelines.steps import OF_COLLECTIONS, Kind

_OF_OBJECTS: dict[str, Kind] = {
    **{
        f"{does} {name}": Kind("numbers", "numbers", make, grows=3, wants_many=True)
        for does, makers in (("reuse", lent.REUSING), ("lend", lent.LENDING))
        for name, make in makers.items()
    },
    "batch": Kind("numbers", "pairs", lent.batched, wants_many=True),
    "batch many": Kind("numbers", "pairs", lent.batched_many, wants_many=True),
}
_CODED: dict[str, Kind] = {
    f"group {name}": Kind("numbers", "numbers", partial(coded.grouped, name), is_dealt=True)
    for name in coded.TYPES
}
_CODED |= {
    f"{name} confused": Kind(
        "numbers",
        "numbers",
        partial(confused.grouped, name),
        on_beams=partial(confused.grouped_by_numbers, name),
        is_dealt=True,
    )
    for name in confused.GROUPINGS
}
_CODED |= {
    "look up confused": Kind(
        "numbers",
        "numbers",
        confused.looked_up,
        beside="numbers",
        on_beams=confused.looked_up_by_numbers,
        is_dealt=True,
    ),
    "boxes aside": Kind("numbers", "numbers", boxes.beside, beside="numbers", is_dealt=True),
}
_CODED |= {
    f"{name} boxes": Kind("numbers", "numbers", make, is_dealt=True)
    for name, make in boxes.BOXING.items()
}
_ODD: dict[str, Kind] = {
    "group beyond": Kind("numbers", "numbers", odd.grouped_beyond),
    "look up beyond": Kind("numbers", "numbers", odd.looked_up_beyond, beside="numbers"),
    "poll": Kind("numbers", "numbers", odd.polled, on_beams=odd.not_polled),
    "deep": Kind("numbers", "numbers", odd.deep, on_beams=odd.not_deep, is_dealt=True),
}
IN_THE_GLOBAL_WINDOW = ("batch", "batch many", "poll", "hold confused", "hold boxes")
"""What brings its elements there."""


def crosses_to_harnesses(name: str) -> bool:
    """Whether a kind of step shows how elements with coders of all kinds cross to SDK harnesses."""
    return name in _CODED


KINDS: dict[str, Kind] = {**OF_COLLECTIONS, **_OF_OBJECTS, **_CODED, **_ODD}
