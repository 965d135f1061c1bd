"""Assigns errors that are raised while Beam creates the operations of a stage to their steps.

Beam does not add the step to an error that a DoFn raises when it is unpickled, because the
operation that would do so does not exist yet.
"""

import functools
from typing import Any

from apache_beam.runners.worker.bundle_processor import BeamTransformFactory

from beam_spark_runner.harness.failures import charge


@functools.cache
def charge_errors_of_creation() -> None:
    """Have every ``BeamTransformFactory`` of this process assign errors to steps."""
    create = BeamTransformFactory.create_operation

    @functools.wraps(create)
    def create_and_charge(factory: Any, transform_id: str, consumers: Any) -> Any:
        try:
            return create(factory, transform_id, consumers)
        except BaseException as error:  # user code may call sys.exit
            charge(error, factory.descriptor.transforms[transform_id].unique_name)
            raise

    BeamTransformFactory.create_operation = create_and_charge
