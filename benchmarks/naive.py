"""The session that many begin with: it holds the conversation, and sends the whole of it to each model call."""

from __future__ import annotations

from datetime import timedelta

from temporalio import activity, workflow


@activity.defn
async def naive_answer(messages: list[str]) -> str:
    """Answer at once, with as much as was asked."""
    return messages[-1][::-1]


@workflow.defn
class NaiveSession:
    """A conversation whose history grows with the square of its turns."""

    def __init__(self) -> None:
        """Begin with nothing said."""
        self._messages: list[str] = []

    @workflow.run
    async def run(self) -> None:
        """Wait for ever."""
        await workflow.wait_condition(lambda: False)

    @workflow.update
    async def ask(self, text: str) -> str:
        """Answer by an activity that is given all that was said."""
        self._messages.append(text)
        answer = await workflow.execute_activity(
            naive_answer, self._messages, start_to_close_timeout=timedelta(minutes=1)
        )
        self._messages.append(answer)
        return answer

    @workflow.query
    def said(self) -> int:
        """Return how much was said."""
        return len(self._messages)
