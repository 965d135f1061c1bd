"""Pipelines whose coders do not fit together, up to the programs of Spark's tasks."""

import logging
import random
from collections.abc import Iterator
from typing import Any, TypeAlias, cast

from apache_beam.portability.api import beam_job_api_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from beam_spark_runner.core import urns
from tests.fuzz.targets.base import Messages, MessageTarget, Target
from tests.programs import prepared_for_a_client, programs

Prepare: TypeAlias = beam_job_api_pb2.PrepareJobRequest

_URNS = sorted(value for name, value in vars(urns).items() if name.startswith("CODER_"))


class Programs(MessageTarget[Prepare]):
    """Pipelines in which coders, and what refers to them, have been exchanged."""

    name = "programs"
    share = 0.5

    def begin(self) -> None:
        logging.disable()

    def message(self, random_: random.Random) -> Message:
        changed = Prepare()
        changed.CopyFrom(random_.choice(self.messages))
        changed.pipeline_options.Clear()
        if random_.random() < 0.3:
            changed.CopyFrom(self.pool.mutated(changed, random_))
        if random_.random() < 0.5:
            changed.pipeline_options["streaming"] = True
        components = changed.pipeline.components
        for each in components.environments.values():
            del each.dependencies[:]  # need to be staged, which is another target
        for _ in range(random_.choice((1, 1, 2, 4))):
            if components.coders:
                _change(components, random_)
        return cast(Message, changed)

    def take(self, message: Prepare) -> object:
        streams = "streaming" in message.pipeline_options
        job = prepared_for_a_client(message.pipeline, is_streaming=streams)
        return list(programs(job))


def _change(components: Any, random_: random.Random) -> None:
    """Exchange a coder, or a reference to one."""
    ids = list(components.coders)
    coder = components.coders[random_.choice(ids)]
    parts = coder.component_coder_ids
    match random_.randrange(6):
        case 0:
            coder.spec.urn = random_.choice(_URNS)
        case 1:
            coder.CopyFrom(components.coders[random_.choice(ids)])
        case 2:
            parts.append(random_.choice(ids))
        case 3 if parts:
            parts[random_.randrange(len(parts))] = random_.choice(ids)
        case 4 if parts:
            del parts[random_.randrange(len(parts))]
        case _:
            owner, field = random_.choice(list(_references(components)))
            setattr(owner, field.name, random_.choice(ids))


def _references(components: Any) -> Iterator[tuple[Any, FieldDescriptor]]:
    """Yield the fields of collections and windowing strategies that name a coder."""
    for owners in (components.pcollections, components.windowing_strategies):
        for owner in owners.values():
            for field in owner.DESCRIPTOR.fields:
                if field.name.endswith("coder_id"):
                    yield owner, field


def targets(messages: Messages) -> list[Target]:
    """Return the targets of this module."""
    return [Programs([each for _, each in messages.of(Prepare)])]
