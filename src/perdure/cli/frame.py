"""The frame around each command: the options that it shares with others, its help, its errors, its exit code.

A command is an async function. Its first parameter is made from shared options by a function of `options`; the others
are options of its own. It returns an exit code, or None for 0.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import typer
from rich.markup import escape

from perdure.cli import options
from perdure.cli.failures import ExitCode, report

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    Work: TypeAlias = Coroutine[Any, Any, int | None]
    Command: TypeAlias = Callable[..., Work]

SERVING, TURNS, READING, STEERING, PEOPLE, STATES, CARE = (
    "Serve an app",
    "Talk to a session",
    "Look into sessions",
    "Take hold of a session",
    "Answer what sessions ask",
    "Care for a session's state",
    "Care for a server",
)
PANELS = (TURNS, SERVING, READING, STEERING, PEOPLE, STATES, CARE)


def command(
    app: typer.Typer, shared: Callable[..., object], *, panel: str, examples: Sequence[str], name: str | None = None
) -> Callable[[Command], Command]:
    """Register a command whose first argument is what `shared` makes of its options."""
    epilog = "\n".join(["[bold]Examples[/bold]", *(f"  {escape(example)}" for example in examples)])

    def register(function: Command) -> Command:
        about = escape(reflow(inspect.getdoc(function) or ""))
        app.command(name, rich_help_panel=panel, help=about, epilog=epilog)(_framed(function, shared))
        return function

    return register


def reflow(text: str) -> str:
    """Return the text with each paragraph on one line, for a terminal of any width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _framed(function: Command, shared: Callable[..., object]) -> Callable[..., None]:
    """Return the function that typer calls: it has the options of `function`, of `shared`, and `--debug`."""
    given = _parameters(shared)
    own = _parameters(function)[1:]
    debugging = inspect.Parameter("debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=options.Debug)

    def call(*, debug: bool, **values: object) -> None:
        own_values = {parameter.name: values[parameter.name] for parameter in own}
        shared_values = {parameter.name: values[parameter.name] for parameter in given}
        finish(lambda: function(shared(**shared_values), **own_values), debug=debug)

    call.__name__ = function.__name__
    setattr(call, "__signature__", inspect.Signature([*own, *given, debugging]))  # noqa: B010  # not an attribute that types know
    return call


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    found = inspect.signature(function, eval_str=True).parameters.values()
    return [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in found]


def finish(work: Callable[[], Work], *, debug: bool) -> NoReturn:
    """Do the work and leave with its exit code. Errors are said in one line.

    Raises:
        Exit: always.
    """
    try:
        code = asyncio.run(_coroutine(work)) or ExitCode.DONE
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = ExitCode.STOPPED
    except BrokenPipeError:
        code = abandon_output()
    except Exception as error:  # noqa: BLE001  # whatever it is, the person reads one line
        code = report(error, debug=debug)
    raise typer.Exit(int(code))


async def _coroutine(work: Callable[[], Work]) -> int | None:
    return await work()


def abandon_output() -> ExitCode:
    """Go on without standard output: its reader has seen enough, which is no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.DONE


def end_program(code: int) -> NoReturn:
    """End the process in order, but without taking the interpreter down.

    A thread of Temporal's client may still be on its way back from the last answer. If it finds the interpreter half
    taken down, the process aborts, and the exit code is lost. It is rare, and less so on a busy machine.
    """
    # Telemetry and logs are flushed there; the name is private, and the same in all Pythons.
    atexit._run_exitfuncs()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(code)
