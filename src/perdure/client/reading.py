"""Reading what is too large for one answer, and what workers read of a session. Reading leaves no event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from perdure import calls, contract
from perdure.contract import (
    CheckpointSlice,
    ContextPage,
    PageRequest,
    Slice,
    StateRequest,
    TranscriptPage,
    WantedOperations,
)
from perdure.errors import InvalidCommand, SessionBusy, SessionNotFound, UncertainOperations
from perdure.results import SessionView
from perdure.state import AgentState

if TYPE_CHECKING:
    from perdure.calls import Handle, Model

READ_ATTEMPTS = 5
"""How often a session's state is read that changes between two looks."""


async def read_state(workflow: Handle) -> AgentState:
    """Read a session's state, whole. A large one is read in pages, which all belong to one moment."""
    try:
        return present(await calls.query(workflow, contract.AGENT_STATE, StateRequest(), AgentState), workflow.id)
    except InvalidCommand as error:
        if contract.CONTEXT_PAGE not in str(error):
            raise
    while True:
        state = await _paged_state(workflow)
        if state is not None:
            return state


async def _paged_state(workflow: Handle) -> AgentState | None:
    """Read a state in pages; None if it changed meanwhile."""
    state = await _without_context(workflow)
    page = await read_page(workflow, PageRequest())
    head, messages = page.head, list(page.messages)
    while len(messages) < head.position and page.messages and page.head == head:
        page = await read_page(workflow, PageRequest(after=len(messages)))
        messages += page.messages
    after = await _without_context(workflow)
    if page.head != head or after.revision != state.revision:
        return None
    return state.model_copy(update={"context": tuple(messages)})


async def read_state_at_rest(workflow: Handle) -> tuple[AgentState, SessionView]:
    """Read the state and the view of a session in which nothing runs or waits.

    Raises:
        SessionBusy: something does.
        UncertainOperations: the outcome of an operation is unknown.
    """
    for _ in range(READ_ATTEMPTS):
        state = await read_state(workflow)
        view = present(await calls.query(workflow, contract.SESSION_VIEW, None, SessionView), workflow.id)
        if view.uncertain:
            msg = f"session {workflow.id} has operations whose outcome is unknown; reconcile them first"
            raise UncertainOperations(msg)
        if view.active or view.interactions or view.queue or view.compacting:
            msg = f"session {workflow.id} is busy; try again when it is at rest"
            raise SessionBusy(msg)
        if view.revision == state.revision:
            return state, view
    msg = f"session {workflow.id} does not come to rest; try again when nobody talks to it"
    raise SessionBusy(msg)


async def _without_context(workflow: Handle) -> AgentState:
    request = StateRequest(context=False)
    return present(await calls.query(workflow, contract.AGENT_STATE, request, AgentState), workflow.id)


async def is_open(workflow: Handle) -> bool:
    """Tell whether a session's workflow can still take commands, or whether it has ended, however that was."""
    try:
        description = await workflow.describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:  # Temporal has forgotten it
            return False
        calls.raise_for(error, workflow.id)
    return description.status is WorkflowExecutionStatus.RUNNING


async def read_page(workflow: Handle, request: PageRequest) -> ContextPage:
    """Read part of a session's context, which leaves no event."""
    return present(await calls.query(workflow, contract.CONTEXT_PAGE, request, ContextPage), workflow.id)


async def read_wanted(workflow: Handle) -> frozenset[str]:
    """Read which operations of a session are to run, which leaves no event."""
    found = await calls.query(workflow, contract.OPERATIONS, None, WantedOperations)
    return frozenset(present(found, workflow.id).operation_ids)


async def read_transcript(workflow: Handle, request: PageRequest) -> TranscriptPage:
    """Read part of a session's transcript, as far as the session still has it, which leaves no event."""
    return present(await calls.query(workflow, contract.TRANSCRIPT_PAGE, request, TranscriptPage), workflow.id)


async def read_checkpoint(workflow: Handle, wanted: Slice) -> CheckpointSlice:
    """Read part of a closed session as JSON, which leaves no event."""
    return present(await calls.query(workflow, contract.CHECKPOINT, wanted, CheckpointSlice), workflow.id)


def present(value: Model | None, workflow_id: str) -> Model:
    """Return an answer that must be there.

    Raises:
        SessionNotFound: it is not.
    """
    if value is None:
        msg = f"session {workflow_id} gave no answer"
        raise SessionNotFound(msg)
    return value
