from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from temporalio.exceptions import ApplicationError

from activities.tools import Attempt
from perdure import contract
from perdure.operations import Effect
from perdure.tools import Tool, ToolError, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REQUEST = httpx.Request("POST", "https://refunds.example/requests")
ATTEMPTS = 3


def caused(by: Exception) -> Exception:
    """Return an error of the tool's own that was raised from another."""
    error = RuntimeError("the service did not answer")
    error.__cause__ = by
    return error


def status_error() -> Exception:
    return httpx.HTTPStatusError("500", request=REQUEST, response=httpx.Response(500, request=REQUEST))


RESULT = "a definite result"
AGAIN = "another attempt"
UNCERTAIN = "uncertain"

TABLE: list[tuple[str, Callable[[], Exception], str, str]] = [
    # what it raises                                        once        others
    ("an error of its own", lambda: ValueError("no"), RESULT, AGAIN),
    ("a definite tool error", lambda: ToolError("no"), RESULT, RESULT),
    ("a tool error that asks for another try", lambda: ToolError("no", retryable=True), RESULT, AGAIN),
    ("a tool error that can't tell", lambda: ToolError("no", uncertain=True), UNCERTAIN, RESULT),
    ("both", lambda: ToolError("no", retryable=True, uncertain=True), UNCERTAIN, AGAIN),
    ("its time-out", TimeoutError, UNCERTAIN, AGAIN),
    ("a broken connection", lambda: httpx.ReadError("broken", request=REQUEST), UNCERTAIN, AGAIN),
    ("a connection that broke when writing", lambda: httpx.WriteError("broken", request=REQUEST), UNCERTAIN, AGAIN),
    ("an answer that is no HTTP", lambda: httpx.RemoteProtocolError("?", request=REQUEST), UNCERTAIN, AGAIN),
    ("an answer that took too long", lambda: httpx.ReadTimeout("slow", request=REQUEST), UNCERTAIN, AGAIN),
    ("no connection", lambda: httpx.ConnectError("refused", request=REQUEST), RESULT, AGAIN),
    ("no connection in time", lambda: httpx.ConnectTimeout("slow", request=REQUEST), RESULT, AGAIN),
    ("no free connection", lambda: httpx.PoolTimeout("busy", request=REQUEST), RESULT, AGAIN),
    ("no such protocol", lambda: httpx.UnsupportedProtocol("gopher", request=REQUEST), RESULT, AGAIN),
    ("an answer that says no", status_error, RESULT, AGAIN),
    ("an error from a broken connection", lambda: caused(httpx.ReadError("broken")), UNCERTAIN, AGAIN),
    ("an error from an error from one", lambda: caused(caused(httpx.ReadTimeout("slow"))), UNCERTAIN, AGAIN),
    ("an error from no connection", lambda: caused(httpx.ConnectError("refused")), RESULT, AGAIN),
]


def made(effect: Effect) -> Tool:
    @tool(effect=effect, attempts=ATTEMPTS)
    def pay() -> None: ...

    return pay


def end_of(effect: Effect, number: int, error: Exception) -> str:
    """Return what an attempt's end means, in the words of the table."""
    try:
        words = Attempt(made(effect), number).failed(error)
    except ApplicationError as failure:
        meanings = {(contract.ERROR_UNCERTAIN, True): UNCERTAIN}
        return meanings.get((failure.type or "", failure.non_retryable), "final" if failure.non_retryable else AGAIN)
    return RESULT if words else "nothing"


@pytest.mark.parametrize(("raises", "once", "others"), [each[1:] for each in TABLE], ids=[each[0] for each in TABLE])
def test_what_an_error_means_depends_on_the_tools_effect_and_on_the_attempts_that_are_left(
    raises: Callable[[], Exception], once: str, others: str
) -> None:
    """B33, B38: `once` is never tried again; the others are, until their attempts are used up."""
    for number in (1, 2, ATTEMPTS):
        assert end_of(Effect.ONCE, number, raises()) == once
        for effect in (Effect.READ, Effect.IDEMPOTENT):
            last = number == ATTEMPTS
            assert end_of(effect, number, raises()) == (RESULT if last and others == AGAIN else others)


@pytest.mark.parametrize("effect", Effect)
def test_the_model_is_told_what_went_wrong(effect: Effect) -> None:
    """B38: the tool, the error's name and its words; a tool's own words stand alone."""
    last = Attempt(made(effect), ATTEMPTS)
    assert last.failed(ToolError("the order is unknown")) == "the order is unknown"
    words = last.failed(ValueError("no such order"))
    assert words.startswith("pay failed: ValueError: no such order")
    assert last.failed(KeyError()).startswith("pay failed: KeyError")


def test_a_tool_that_took_too_long_says_how_long_it_had() -> None:
    """B38: when no attempt is left."""
    words = Attempt(made(Effect.READ), ATTEMPTS).failed(TimeoutError())
    assert words == "pay did not answer within 60 s (after 3 attempts)"


@pytest.mark.parametrize("effect", Effect)
def test_an_attempt_that_was_stopped_is_uncertain_only_if_it_may_never_be_repeated(effect: Effect) -> None:
    """B40: the others go on at another worker."""
    failure = Attempt(made(effect), 1).stopped()
    assert (failure.type == contract.ERROR_UNCERTAIN) == (effect is Effect.ONCE)
    assert failure.non_retryable == (effect is Effect.ONCE)


def test_an_attempt_in_a_thread_whose_outcome_is_unknown_may_still_be_under_way() -> None:
    """B34: nobody can stop a thread, so its time counts before it is believed that nothing happened."""

    @tool(effect=Effect.ONCE)
    async def stoppable() -> None: ...

    def details(of: Tool) -> Sequence[object]:
        with pytest.raises(ApplicationError) as caught:
            Attempt(of, 1).failed(TimeoutError())
        return caught.value.details

    assert Attempt(stoppable, 1).stopped().details == ()
    assert tuple(Attempt(made(Effect.ONCE), 1).stopped().details) == (contract.NOT_OVER,)
    assert tuple(details(stoppable)) == ()
    assert tuple(details(made(Effect.ONCE))) == (contract.NOT_OVER,)
