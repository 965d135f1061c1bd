"""Insert a step in which elements wait for side inputs, before steps with state or stable input."""

from dataclasses import replace

from beam_spark_runner.core import urns
from beam_spark_runner.core.ids import PCollectionId, TransformId
from beam_spark_runner.graph.facts import fresh, main_input, producers
from beam_spark_runner.graph.model import Graph, Transform


def await_side_inputs(graph: Graph) -> Graph:
    """Put a Flatten of one collection, with side inputs, in front of some transforms.

    These are keyed transforms and those that require stable input, if they have side inputs. The
    Flatten is the first transform of a stage, in front of which elements wait until their side
    inputs are ready, and hold the watermark. So elements do not become late or expire because they
    have waited, and stored stable input need not wait again.

    Example:
        pairs -> Count(state, rates)   ==>   pairs -> Count/Wait(rates) -> Count(state, rates)

    Returns:
        A new graph. A second run changes nothing.
    """
    producer = producers(graph)
    pcollections = dict(graph.pcollections)
    transforms: dict[TransformId, Transform] = {}
    ids = set(graph.transforms)
    for id_, reader in graph.transforms.items():
        stores = reader.is_keyed or (reader.requires_stable_input and reader.urn == urns.PAR_DO)
        if not (stores and reader.side_inputs) or _waits(graph, reader, producer):
            transforms[id_] = reader
            continue
        ((local_name, source_id),) = reader.main_inputs.items()
        waited_id = PCollectionId(fresh(f"{source_id}_waited", pcollections))
        name = f"{reader.name}/Wait"
        pcollections[waited_id] = replace(graph.pcollections[source_id], name=f"{name}.out")
        wait_id = TransformId(fresh(f"{id_}/Wait", ids))
        ids.add(wait_id)
        transforms[wait_id] = Transform(
            name=name,
            part_of=reader.step,
            urn=urns.FLATTEN,
            inputs=reader.inputs,
            outputs={"out": waited_id},
            side_inputs=reader.side_inputs,
        )
        transforms[id_] = replace(reader, inputs={**reader.inputs, local_name: waited_id})
    return replace(graph, transforms=transforms, pcollections=pcollections)


def _waits(graph: Graph, reader: Transform, producer: dict[PCollectionId, TransformId]) -> bool:
    producer_id = producer.get(main_input(reader))
    return producer_id is not None and bool(
        graph.transforms[producer_id].urn == urns.FLATTEN
        and graph.transforms[producer_id].side_inputs
    )
