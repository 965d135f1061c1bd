"""How often sinks may write an element after failures."""

from typing import Any, Literal, get_args

from beam_spark_runner.core.errors import OptionsError

DeliveryGuarantee = Literal["exactly_once", "at_least_once"]
"""exactly_once: sinks write as their arguments say. at_least_once: those that could write exactly
once write again what was not committed, without transactions."""


def delivery_guarantee(value: Any) -> DeliveryGuarantee:
    """Check ``--delivery_guarantee``. None: it is not given.

    Raises:
        OptionsError: There is no such guarantee.
    """
    if value is None:
        return "exactly_once"
    if value in get_args(DeliveryGuarantee):
        guarantee: DeliveryGuarantee = value
        return guarantee
    choices = ", ".join(get_args(DeliveryGuarantee))
    raise OptionsError("delivery_guarantee", f"{value!r:.100} is not one of: {choices}")
