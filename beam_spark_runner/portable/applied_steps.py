"""Finds the steps that the user of a pipeline has applied, whose parts Beam has made."""

from collections.abc import Mapping

from apache_beam.portability.api import beam_runner_api_pb2

_CLASS = "python_type"  # an annotation of the Python SDK: the class of the transform
_LIBRARIES = ("apache_beam.", "beam_spark_runner.")
_OF_USERS = (
    "apache_beam.transforms.ptransform._PTransformFnPTransform",  # @ptransform_fn
    "apache_beam.transforms.ptransform._ChainedPTransform",  # one | other
    "apache_beam.yaml.",
)
"""Classes of Beam whose parts are steps that a user has applied."""


def steps_of_parts(pipeline: beam_runner_api_pb2.Pipeline) -> Mapping[str, str]:
    """Return the parts of Beam's own composites, each with the name of the outermost composite.

    Composites of a user are not among them: users know the names inside. Neither are those of SDKs
    that do not say whose composite it is.

    Example:
        Score (a user's) [Parse [Map], Mean (Beam's) [Map, CombinePerKey]]
        ==>   Score/Mean/Map: Score/Mean, Score/Mean/CombinePerKey: Score/Mean

    Args:
        pipeline: The proto, as an SDK has made it.

    Returns:
        Names of steps, by the ids of the transforms.
    """
    transforms = pipeline.components.transforms
    steps: dict[str, str] = {}
    seen: set[str] = set()
    stack = [(id_, "") for id_ in pipeline.root_transform_ids]
    while stack:
        id_, step = stack.pop()
        if id_ in seen or id_ not in transforms:
            continue
        seen.add(id_)
        proto = transforms[id_]
        if step:
            steps[id_] = step
        elif proto.subtransforms and _is_of_a_library(proto):
            step = proto.unique_name
        stack.extend((part, step) for part in proto.subtransforms)
    return steps


def _is_of_a_library(proto: beam_runner_api_pb2.PTransform) -> bool:
    if _CLASS not in proto.annotations:  # a protobuf map adds missing keys
        return False
    name = proto.annotations[_CLASS].decode(errors="replace")
    return name.startswith(_LIBRARIES) and not name.startswith(_OF_USERS)
