"""Errors of state requests that no SDK should send, the same from every backend."""

from beam_spark_runner.core.errors import FnApiProtocolError
from beam_spark_runner.state.backend import Address, Cell


def unknown_token() -> FnApiProtocolError:
    """Return the error for a continuation token that was not issued for the address."""
    return FnApiProtocolError("the SDK asked for a page with a continuation token of another state")


def cleared_while_read() -> FnApiProtocolError:
    """Return the error for a token of a state that was cleared, or a list appended to, since."""
    return FnApiProtocolError("the state was cleared while the SDK read it page by page")


def cannot_append(address: Address) -> FnApiProtocolError:
    """Return the error for an append to an address that can only be read or cleared."""
    return FnApiProtocolError(
        f"the SDK cannot append to the {type(address).__name__} of the state {address.cell.state}"
    )


def cannot_clear(address: Address) -> FnApiProtocolError:
    """Return the error for clearing an address that can only be read."""
    return FnApiProtocolError(
        f"the SDK cannot clear the {type(address).__name__} of the state {address.cell.state}, "
        "only its MapKeys"
    )


def cannot_count(cell: Cell) -> FnApiProtocolError:
    """Return the error for the entries of a multimap whose values the runner cannot count."""
    return FnApiProtocolError(
        f"the SDK asked for the entries of the state {cell.state}, which begin with the number of "
        "their values, but the runner does not know the coder of these values, and the SDK does "
        "not prefix them with their length: give them a coder of Beam's model"
    )


def malformed_values(cell: Cell, problem: str) -> FnApiProtocolError:
    """Return the error for bytes that are no values of a multimap's coder."""
    return FnApiProtocolError(
        f"the SDK appended bytes to the state {cell.state} that are no encoded values: {problem}"
    )


def of_another_kind(cell: Cell) -> FnApiProtocolError:
    """Return the error for a cell that has been written as another kind of state."""
    return FnApiProtocolError(f"the state {cell.state} was written as another kind of state")
