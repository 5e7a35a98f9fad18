"""What receipts say to people, in plain words; to programs they are JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from perdure.cli.terminal import say, say_model
from perdure.results import TurnStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.results import CloseReceipt, InterruptReceipt, PauseReceipt, Receipt, SteerReceipt, TurnResult
    from perdure.values import Frozen

AnyReceipt = TypeVar("AnyReceipt", bound="Frozen")


def tell_receipt(receipt: AnyReceipt, words: Callable[[AnyReceipt], str], *, as_json: bool) -> None:
    """Print a receipt."""
    if as_json:
        say_model(receipt)
    else:
        say(words(receipt))


def accepted(receipt: Receipt) -> str:
    """Return what became of a submit."""
    place = "" if receipt.position is None else f", number {receipt.position} in the queue"
    return f"turn {receipt.turn_id}: {receipt.disposition}{place}"


def resumed(receipt: Receipt) -> str:
    """Return what became of a resume."""
    return f"turn {receipt.turn_id}: resumed in run {receipt.run_id}"


def answered(receipt: Receipt) -> str:
    """Return what an answer did."""
    if receipt.disposition == "waiting":
        return f"turn {receipt.turn_id}: answered in part; the rest is still waited for"
    return f"turn {receipt.turn_id}: goes on in run {receipt.run_id}"


def settled(receipt: Receipt) -> str:
    """Return what a statement about operations did."""
    if receipt.disposition == "started":
        return f"turn {receipt.turn_id}: goes on in run {receipt.run_id}"
    return f"settled; turn {receipt.turn_id} does not wait for it"


def cancelled(receipt: Receipt) -> str:
    """Return what became of a cancel."""
    if receipt.disposition == "stopping":
        return f"turn {receipt.turn_id}: is being stopped, and will be over then"
    return f"turn {receipt.turn_id}: over for good"


def came_too_late(receipt: Receipt) -> str:
    """Return what a cancel of a turn did that was done."""
    return f"turn {receipt.turn_id}: has completed; nothing was cancelled"


def steered(receipt: SteerReceipt) -> str:
    """Return who will see what was steered, and when."""
    return f"turn {receipt.turn_id}: steered, seen at step {receipt.step}"


def injected(receipt: Receipt) -> str:
    """Return who will see what was injected."""
    if receipt.disposition == "steered":
        return f"turn {receipt.turn_id}: sees it at its next step"
    return "no turn runs: the next one will see it"


def interrupted(receipt: InterruptReceipt) -> str:
    """Return what an interrupt did."""
    if not receipt.interrupted:
        return "nothing was running"
    return f"interrupted turn {receipt.turn_id}, run {receipt.run_id}"


def paused(receipt: PauseReceipt) -> str:
    """Return what a pause did."""
    held = "" if receipt.turn_id is None else f"; turn {receipt.turn_id} is held when its step is done"
    return f"paused{held}"


def unpaused(receipt: PauseReceipt) -> str:
    """Return what the end of a pause did."""
    running = "" if receipt.turn_id is None else f"; turn {receipt.turn_id} runs"
    return f"the session is not paused{running}"


def closed(receipt: CloseReceipt) -> str:
    """Return what closing did."""
    return f"closed; cancelled: {', '.join(receipt.cancelled)}" if receipt.cancelled else "closed; nothing was waiting"


def verdict(result: TurnResult) -> str:
    """Return why a turn did not complete, in one line."""
    reason = "" if result.error is None else f": {result.error.type}: {result.error.message}"
    wait = "; `perdure view` shows what it waits for" if result.status is TurnStatus.SUSPENDED else ""
    return f"turn {result.turn_id} is {result.status.value}{reason}{wait}"
