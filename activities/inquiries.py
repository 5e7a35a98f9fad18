"""The inquiry activity: a tool says what became of one of its calls, from its system of record."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from temporalio import activity

from activities import outputs
from activities.beating import beating
from activities.correlation import correlated
from activities.failures import failure, stopped
from perdure import contract
from perdure.contract import Finding, Inquiry
from perdure.operations import Outcome
from perdure.values import thaw

if TYPE_CHECKING:
    from activities.environment import ToolEnvironment
    from perdure.agents import App
    from perdure.contract import ToolInvocation
    from perdure.tools import Tool

ATTEMPTS = 5
"""How often a tool is asked that fails to answer. After that, somebody must look."""


class InquiryActivities:
    """Asks the tools of an app's agents."""

    def __init__(self, app: App, environment: ToolEnvironment) -> None:
        """Serve `app`, with what `environment` lends."""
        self._tools = app.tools
        self._environment = environment

    @activity.defn(name=contract.INQUIRY_ACTIVITY)
    async def reconcile(self, inquiry: Inquiry) -> Finding:
        """Ask a tool what became of a call. It only reads, so that it may be asked as often as needed.

        What has not happened is believed when the lost attempt has surely ended, and asked again until then.
        """
        invocation = inquiry.invocation
        tool = self._tools.get((invocation.agent_id, invocation.tool))
        if tool is None or tool.reconcile is None:
            return Finding(outcome="unknown", why=f"this worker has no tool {invocation.tool!r} that can tell")
        with correlated(invocation, f"reconcile {tool.name}"):
            async with beating():
                finding = await self._ask(tool, invocation)
        if finding.outcome == "did_not_happen":
            _wait_for_the_end(inquiry)
        return finding

    async def _ask(self, tool: Tool, invocation: ToolInvocation) -> Finding:
        if tool.reconcile is None:
            return Finding(outcome="unknown")
        try:
            async with asyncio.timeout(tool.timeout.total_seconds()):
                outcome = await tool.reconcile(self._environment.context(tool, invocation))
            return self._finding(tool, invocation, outcome)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and (activity.is_cancelled() or activity.is_worker_shutdown()):
                what = f"the inquiry of {tool.name}"
                raise stopped(what) from None
            words = f"{tool.name} could not tell what became of its call: {type(error).__name__}"
            if activity.info().attempt >= ATTEMPTS:
                return Finding(outcome="unknown", why=words)
            raise failure(words, type(error).__name__, final=False, cause=error) from error

    def _finding(self, tool: Tool, invocation: ToolInvocation, outcome: object) -> Finding:
        if not isinstance(outcome, Outcome):
            return Finding(
                outcome="unknown", why=f"{tool.name}'s reconcile gave no Outcome but {type(outcome).__name__}"
            )
        match outcome.kind:
            case "happened":
                blocks = outputs.blocks(thaw(outcome.result))
                workflow_id = activity.info().workflow_id or ""
                result = outputs.result(
                    invocation.call_id, tool.name, blocks, workflow_id=workflow_id, store=self._environment.store
                )
                return Finding(outcome="happened", result=result)
            case "did_not_happen":
                return Finding(outcome="did_not_happen")
            case _:
                return Finding(outcome="unknown", why=outcome.reason)


def _wait_for_the_end(inquiry: Inquiry) -> None:
    """Ask again when the lost attempt has ended, by the server's clock, if it may still be under way."""
    if inquiry.over_by is None:
        return
    left = inquiry.over_by - activity.info().current_attempt_scheduled_time
    if left.total_seconds() > 0:
        msg = "it has not happened yet, and the worker that was lost may still be at it"
        raise failure(msg, "StillUnderWay", final=False, after=left)
