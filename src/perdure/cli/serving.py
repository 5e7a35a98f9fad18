"""Commands that serve an app: a worker, and a whole setup for development."""

# typer reads the annotations when the program runs, so they are no strings here.

import signal
import sys
import traceback
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn, TypeAlias

import typer

from perdure.agents import App
from perdure.cli import deployed
from perdure.cli.develop import Wishes, develop
from perdure.cli.failures import ExitCode
from perdure.cli.frame import CARE, SERVING, command
from perdure.cli.options import Address, Namespace, Server, TaskQueue, server_options
from perdure.cli.terminal import say
from perdure.contract import TASK_QUEUE
from perdure.errors import ConfigurationError, PerdureError

AppName: TypeAlias = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="Where the App is, for example my_module:app.")
]
Port: TypeAlias = Annotated[
    int | None, typer.Option("--port", min=1, max=65535, help="gRPC port of the server; 7233 if that is free.")
]
UiPort: TypeAlias = Annotated[
    int | None, typer.Option("--ui-port", min=1, max=65535, help="Port of the Temporal UI; 8233 if that is free.")
]
DataDir: TypeAlias = Annotated[
    Path | None,
    typer.Option("--data-dir", file_okay=False, help="Folder of all data; PERDURE_HOME, or your data folder."),
]

Deployment: TypeAlias = Annotated[
    str | None, typer.Option("--deployment", metavar="NAME", help="Its worker deployment, or PERDURE_DEPLOYMENT.")
]
BuildId: TypeAlias = Annotated[
    str | None, typer.Option("--build-id", metavar="ID", help="Its version there, or PERDURE_BUILD_ID.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(
        app,
        dev_options,
        panel=SERVING,
        examples=("perdure dev my_module:app", "perdure dev my_module:app --ui-port 8080 --data-dir ./data"),
    )(dev)
    command(
        app,
        server_options,
        panel=SERVING,
        examples=(
            "perdure worker my_module:app",
            "perdure worker my_module:app --deployment support --build-id 2f9c1e0",
            "TEMPORAL_ADDRESS=temporal.example.com:7233 perdure worker my_module:app",
        ),
    )(worker)
    command(
        app, server_options, panel=CARE, examples=("perdure setup", "perdure setup --address temporal.example.com:7233")
    )(setup)


def dev_options(
    *,
    port: Port = None,
    ui_port: UiPort = None,
    data_dir: DataDir = None,
    address: Address = None,
    namespace: Namespace = None,
    task_queue: TaskQueue = TASK_QUEUE,
) -> Wishes:
    """Read what `dev` is to start."""
    return Wishes(port, ui_port, data_dir, address, namespace, task_queue)


async def dev(wishes: Wishes, *, app: AppName) -> None:
    """Serve an app on this machine: a Temporal server with its UI, and a worker.

    All data stays in one folder, so that sessions go on after a restart. A server that runs already is used: one on the
    same folder, or the one of --address or TEMPORAL_ADDRESS. The server is started again when it dies. Ctrl-C stops
    what was started here.
    """
    stop_early()
    await develop(load(app), app, wishes)


async def worker(server: Server, *, app: AppName, deployment: Deployment = None, build_id: BuildId = None) -> None:
    """Serve an app on a Temporal server that runs already.

    Start as many as you like: they share the work. On SIGTERM or Ctrl-C a worker takes no new work and gives what runs
    time to end. Settings are read from PERDURE_ variables.

    With --deployment and --build-id it is a version of a Temporal worker deployment, which gets sessions once it is
    made the current one: `temporal worker deployment set-current-version`. docs/upgrades.md has the steps.
    """
    stop_early()
    place = server.place
    given = {"deployment": deployment, "build_id": build_id}
    version = {name: value for name, value in given.items() if value is not None}
    settings = deployed.settings.WorkerSettings.load(task_queue=place.task_queue, storage=place.storage, **version)
    served = load(app)
    deployed.logs.configure(settings, sys.stderr)
    await deployed.running.run_worker(served, settings, address=place.address, namespace=place.namespace)


async def setup(server: Server) -> None:
    """Prepare a Temporal server for sessions: register perdure's search attributes.

    Once for each server and namespace; doing it again is harmless. `perdure dev` needs none of it. On Temporal Cloud,
    add them in its console instead: PerdureAgent, PerdureUser, PerdureSession and PerdureStatus, of type Keyword.
    """
    client = await server.place.connect()
    added = await deployed.setup.register_attributes(client)
    where = f"namespace {client.namespace!r} of {client.service_client.config.target_host}"
    if added:
        say(f"registered {', '.join(added)} in {where}")
    else:
        say(f"{where} has all that sessions need")


def load(name: str) -> App:
    """Import an app.

    Raises:
        ConfigurationError: there is none of that name, or its module can't be imported.
    """
    try:
        return deployed.loading.load_app(name)
    except PerdureError:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        msg = (
            f"{name} can't be imported: {type(error).__name__}: {error} ({last.filename}, line {last.lineno}); "
            "--debug shows the way there"
        )
        raise ConfigurationError(msg) from error


def stop_early() -> None:
    """Leave with 0 when asked to stop while nothing runs yet. What runs later asks for the signals itself."""
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(ExitCode.DONE)
