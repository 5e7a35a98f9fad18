"""How a command ends: its exit code, and what is said about an error."""

from __future__ import annotations

import sys
import traceback
from enum import IntEnum

from perdure.cli.terminal import complain
from perdure.errors import (
    ArchiveUnavailable,
    ConfigurationError,
    InvalidCommand,
    InvalidSessionKey,
    PerdureError,
    ServerUnavailable,
    SetupRequired,
)


class WrongUsage(PerdureError):
    """Options or arguments that don't make sense together."""


class ExitCode(IntEnum):
    """What a command tells the program that ran it."""

    DONE = 0
    REFUSED = 1
    USAGE = 2
    NO_SERVER = 3
    INCOMPLETE = 4
    STOPPED = 130
    """By Ctrl-C, as shells count it."""


def exit_code(error: Exception) -> ExitCode:
    """Return the code for an error."""
    match error:
        case ServerUnavailable() | ArchiveUnavailable() | SetupRequired():
            return ExitCode.NO_SERVER
        case WrongUsage() | ConfigurationError() | InvalidSessionKey():
            return ExitCode.USAGE
        case InvalidCommand() if error.__cause__ is None:
            # Refused before it left this program. What a session refuses has the failed call as its cause.
            return ExitCode.USAGE
        case _:
            return ExitCode.REFUSED


def report(error: Exception, *, debug: bool) -> ExitCode:
    """Say what went wrong in one line, with the traceback before it if that is wanted, and return the exit code."""
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, PerdureError):
        complain(str(error))
    else:
        hint = "" if debug else " (a fault in perdure; --debug shows where)"
        complain(f"{type(error).__name__}: {error}{hint}")
    return exit_code(error)
