"""Finds what the stages of a streaming plan store in their shards from epoch to epoch."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from beam_spark_runner.core.ids import StageId
from beam_spark_runner.plan.model import Delivery, Destination, Stage, Stored


def with_stores(
    stages: Mapping[StageId, Stage], destinations: Iterable[Destination]
) -> dict[StageId, Stage]:
    """Return the stages of a streaming plan with what each of them stores.

    Args:
        stages: The stages of the plan.
        destinations: The destinations of the plan.
    """
    inputs = {
        destination.stage: destination
        for destination in destinations
        if destination.stage is not None
    }
    return {
        id_: replace(stage, stores=_stores(stage, inputs[id_])) for id_, stage in stages.items()
    }


def _stores(stage: Stage, read: Destination) -> frozenset[Stored]:
    """Return what a stage stores that reads a destination."""
    # In front of the others, another stage has waited: see ``graph.passes.await_side_inputs``. That
    # of a splittable DoFn is the one that makes its restrictions, with the same side inputs.
    waits = not (stage.is_keyed or stage.is_stable or stage.is_splittable)
    conditions = {
        Stored.KEYS: stage.is_keyed,
        Stored.GROUPS: read.delivery is Delivery.GROUP_BY_KEY,
        Stored.VIEW: read.delivery is Delivery.SIDE_INPUT,
        Stored.RESTRICTIONS: stage.is_splittable,
        Stored.UNREADY: bool(stage.side_inputs) and waits,
        Stored.UNCOMMITTED: stage.is_stable,
        Stored.UNSORTED: read.is_time_sorted,
    }
    return frozenset(kind for kind, is_stored in conditions.items() if is_stored)


def may_be_in_state_store(stores: frozenset[Stored]) -> bool:
    """Whether the keys of a stage are in the state store, if there is one.

    Args:
        stores: What the stage stores.
    """
    return bool(stores & {Stored.KEYS, Stored.GROUPS}) and Stored.VIEW not in stores


def lags(stores: frozenset[Stored]) -> bool:
    """Whether a stage reaches a watermark only in the epoch after the one that has committed it.

    Stable input is processed then. That of a splittable DoFn is restrictions, each of which holds
    the watermark by itself.

    Args:
        stores: What the stage stores.
    """
    return Stored.UNCOMMITTED in stores and Stored.RESTRICTIONS not in stores
