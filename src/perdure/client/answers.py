"""The part of a handle that answers what a session asks of people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure import commands
from perdure.client import making
from perdure.client.addressed import Addressed
from perdure.results import Receipt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.commands import Decision
    from perdure.operations import Outcome


class Answers(Addressed):
    """Answers to what a session asks."""

    async def respond(
        self,
        request_id: str,
        approve: bool | Mapping[str, Decision] | None = None,  # noqa: FBT001  # public name
        *,
        remember: bool = False,
        reason: str | None = None,
        result: Mapping[str, object] | None = None,
        actor: str | None = None,
    ) -> Receipt:
        """Answer what a suspended turn waits for, as `view().interactions` shows it.

        When nothing is outstanding any more the turn goes on, in a new run (`started`); else it is still `waiting`, and
        what is left of an approval is asked again, under another request id.

        Args:
            request_id: Which request is answered.
            approve: For an approval: whether the calls may run, for all of them or by call id. Arguments that a
                decision brings take the place of the model's; they are checked where the tool runs, against its schema
                and the deny rules, and deny wins.
            remember: Write the rules that the request suggests for the approved calls into the session's permissions,
                so that such calls are not asked about again.
            reason: Why; the model is told the reason of a denial.
            result: For calls that were carried out outside: what came of them, by call id; a `ToolError` for one that
                failed.
            actor: Who answers, for the record.

        Raises:
            InteractionNotFound: nothing is asked under this id, or not any more: it says what was answered and by whom.
            InvalidCommand: it speaks of calls that are not asked about, or answers something else than what is asked.
        """
        command = making.respond(request_id, approve, remember=remember, reason=reason, result=result, actor=actor)
        return await self._update(commands.RESPOND, command, Receipt)

    async def reconcile(self, outcomes: Mapping[str, Outcome], *, reason: str, actor: str | None = None) -> Receipt:
        """Say what became of the operations whose outcome is unknown: of all that `view().uncertain` lists.

        One that did not happen is run, under the same id, if its turn waits for it. A suspended turn then goes on in a
        new run; one that was interrupted can be resumed.

        Raises:
            InvalidCommand: an operation is missing, or one is named whose outcome is not outstanding.
        """
        command = making.reconcile(outcomes, reason=reason, actor=actor)
        return await self._update(commands.RECONCILE, command, Receipt)
