"""Assigns errors that are raised while Beam creates the operations of a stage to their steps.

What a DoFn raises when it is unpickled, Beam hands on as it is; the operation that would put the
step into its message does not exist yet.
"""

import functools
from typing import Any

from apache_beam.runners.worker.bundle_processor import BeamTransformFactory

from beam_spark_runner.harness.failures import charge


@functools.cache
def charge_errors_of_creation() -> None:
    """Have ``BeamTransformFactory`` charge errors; for all factories of this process."""
    create = BeamTransformFactory.create_operation

    @functools.wraps(create)
    def create_and_charge(factory: Any, transform_id: str, consumers: Any) -> Any:
        try:
            return create(factory, transform_id, consumers)
        except BaseException as error:  # user code may call sys.exit
            charge(error, factory.descriptor.transforms[transform_id].unique_name)
            raise

    BeamTransformFactory.create_operation = create_and_charge
