"""The demonstration: `python -m examples.refunds.demo`, or `make demo`.

A refund is requested, and the worker is killed in the one moment in which nobody can know whether that took effect.
Then the money is paid, elsewhere. The session goes on, and says what the ledger says. A refund over the limit asks a
person, and the worker is replaced while the question waits. Exit code 0 only if everything is as it should be.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.refunds.narrator import Narrator
from examples.refunds.processes import until
from examples.refunds.stage import Stage, set_up
from examples.refunds.tools import submit_refund_request
from perdure import PerdureError, SessionHandle, TurnResult, TurnStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

ASK_REFUND = "订单 A1042 需要申请退款"
ASK_STATUS = "处理到哪里了"
NOTE = "记一下已经退款了"
ASK_MUCH = "订单 A1044 也要退款"
PAID = "已付款"

PATIENCE = 60
"""Seconds that any single step may take."""


async def demonstrate(stage: Stage, tell: Narrator) -> bool:
    """Tell the story; return whether everything was as it should be."""
    session = stage.sessions.session("support", f"order-A1042-{int(time.time())}", user_id="alice")
    tell.begin(stage.server.address, str(stage.staff.base_url), stage.ui(session))
    turn_id = await _crash_after_the_effect(stage, tell, session)
    before = await stage.books()

    tell.step("Another worker takes over, and the turn goes on where it was")
    async with stage.worker() as worker:
        tell.process("worker", worker.child.pid, "started")
        first = await session.result(turn_id, timeout=PATIENCE)
        tell.turn(ASK_REFUND, first)
        tell.ledger(await stage.books())
        answers = [first, *await _the_rest(stage, tell, session, before)]
        large = await _ask_for_much(stage, tell, session)
    tell.process("worker", worker.child.pid, f"stopped with SIGTERM, exit code {worker.child.returncode}")
    async with stage.worker() as worker:
        tell.process("worker", worker.child.pid, "started")
        agreed = await _agree(stage, tell, session, large)
        tell.session(await session.view(), await session.state())
    attempts = await stage.attempts(session, submit_refund_request.name)
    return tell.verdict(
        _checks(before, await stage.books(), attempts) | _said(before, answers) | _approved(await stage.books(), agreed)
    )


async def _crash_after_the_effect(stage: Stage, tell: Narrator, session: SessionHandle) -> str:
    """Have a refund requested, and kill the worker between the effect and its result. Returns the turn's id."""
    tell.step("Alice asks for a refund, and the worker is killed before it hears the refund service's answer")
    async with stage.worker() as worker:
        tell.process("worker", worker.child.pid, "started")
        receipt = await session.submit(ASK_REFUND)
        tell.say("alice", ASK_REFUND)
        await until(stage.held, "the refund service to record the request", PATIENCE)
        active = (await session.view()).active
        tell.fact(f"The ledger has the request; the session still waits for {active.doing if active else 'nothing'}.")
        await worker.kill()
        tell.process("worker", worker.child.pid, "killed with SIGKILL")
    tell.ledger(await stage.books())
    return receipt.turn_id


async def _the_rest(
    stage: Stage, tell: Narrator, session: SessionHandle, before: dict[str, Any]
) -> Sequence[TurnResult]:
    request_id = before["requests"][0]["request_id"]

    async def ask(text: str) -> TurnResult:
        result = await session.ask(text, timeout=PATIENCE)
        tell.turn(text, result)
        return result

    tell.step("Alice asks how far it is, and then tries to settle it by saying so")
    waiting, noted = await ask(ASK_STATUS), await ask(NOTE)
    tell.ledger(await stage.books())
    tell.step("Staff approve the request and pay it, in the refund service; the session is not told")
    for decision in ("approve", "pay"):
        await stage.decide(request_id, decision)
        tell.fact(f"POST /requests/{request_id}/{decision}")
    tell.step("Alice asks again: the answer comes from the ledger, not from the conversation")
    return waiting, noted, await ask(ASK_STATUS)


async def _ask_for_much(stage: Stage, tell: Narrator, session: SessionHandle) -> TurnResult:
    """Have a refund asked for that needs a person's word, which nobody gives yet."""
    tell.step("Alice asks for a refund over the limit, which a person has to approve; meanwhile the worker is replaced")
    result = await session.ask(ASK_MUCH, timeout=PATIENCE)
    tell.say("alice", ASK_MUCH)
    view = await session.view()
    for interaction in view.interactions:
        tell.asked(interaction)
    tell.fact(f"The turn is {result.status}, the session {view.status}; the ledger has nothing of it.")
    tell.ledger(await stage.books())
    return result


async def _agree(stage: Stage, tell: Narrator, session: SessionHandle, asked: TurnResult) -> TurnResult:
    """Approve what was asked before the worker was replaced."""
    (interaction,) = (await session.view()).interactions
    await session.respond(interaction.request_id, approve=True, actor="the manager")
    tell.say("manager", "approved")
    result = await session.result(asked.turn_id, timeout=PATIENCE)
    tell.say("support", result.output)
    tell.ledger(await stage.books())
    return result


def _approved(books: dict[str, Any], answer: TurnResult) -> dict[str, bool]:
    """Return what must have come of the approval, and whether it has."""
    large = [item["request_id"] for item in books["requests"] if item["order_id"] == "A1044"]
    return {
        "what was approved ran once, on the worker that came after": len(large) == 1
        and answer.status is TurnStatus.COMPLETED
        and large[0] in answer.output
    }


def _checks(before: dict[str, Any], after: dict[str, Any], attempts: int) -> dict[str, bool]:
    """Return what must be on record at the end, and whether it is."""
    first = [item for item in after["requests"] if item["order_id"] != "A1044"]
    operations = [[item["operation_id"] for item in requests] for requests in (before["requests"], first)]
    return {
        "the tool was started again, by another worker": attempts >= 2,
        "the ledger holds one request, of one operation": len(first) == 1 and operations[0] == operations[1],
        "the ledger holds one payment, of 120.00 EUR": [item["amount"] for item in after["payments"]] == ["120.00"],
    }


def _said(before: dict[str, Any], answers: Sequence[TurnResult]) -> dict[str, bool]:
    """Return what must have been said, and whether it was."""
    request_id = before["requests"][0]["request_id"]
    *early, last = (answer.output for answer in answers)
    return {
        "each turn was completed": all(answer.status is TurnStatus.COMPLETED for answer in answers),
        "the turn that lost its worker names the request": request_id in early[0],
        "no answer before the payment says that it is paid": not any(PAID in said for said in early),
        "the answer after it says so": PAID in last and request_id in last,
    }


async def perform(folder: Path, tell: Narrator, *, keep: bool) -> int:
    """Set everything up, tell the story, and stop what was started."""
    started = time.monotonic()
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is not None:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with set_up(folder) as stage:
            right = await demonstrate(stage, tell)
            tell.fact(f"That took {time.monotonic() - started:.0f} s.")
            if keep:
                tell.fact("The Temporal UI stays up. Ctrl-C stops it.")
                await asyncio.Event().wait()
    except (PerdureError, RuntimeError, TimeoutError) as error:
        tell.failed(error, folder / "worker.log")
        return 1
    return 0 if right else 1


def main() -> int:
    """Read the command line and perform."""
    parser = argparse.ArgumentParser(description="A refund that outlives a crash.")
    parser.add_argument("--data-dir", type=Path, help="keep all data in this folder; a temporary one by default")
    parser.add_argument("--keep", action="store_true", help="leave the Temporal UI up at the end, until Ctrl-C")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perdure-demo-") as temporary:
        folder = Path(temporary)
        if options.data_dir is not None:
            folder = (options.data_dir / time.strftime("%Y%m%d-%H%M%S")).absolute()
            folder.mkdir(parents=True)
        try:
            return asyncio.run(perform(folder, Narrator(), keep=options.keep))
        except (KeyboardInterrupt, asyncio.CancelledError):
            return 130


if __name__ == "__main__":
    sys.exit(main())
