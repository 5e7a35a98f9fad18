"""The yardstick: a bare Temporal workflow that does what any session must, an update that waits for an activity."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity, workflow


@activity.defn
async def bare_answer(text: str) -> str:
    """Answer at once."""
    return f"heard {text}"


@workflow.defn
class BareSession:
    """A workflow without rules, state or safety."""

    @workflow.run
    async def run(self) -> None:
        """Wait for ever."""
        await workflow.wait_condition(lambda: False)

    @workflow.update
    async def ask(self, text: str) -> str:
        """Answer by an activity."""
        return await workflow.execute_activity(
            bare_answer, text, start_to_close_timeout=timedelta(minutes=1), heartbeat_timeout=timedelta(seconds=30)
        )
