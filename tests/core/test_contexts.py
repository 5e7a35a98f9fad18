from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from activities.contexts import Context, ContextCache, ContextMovedOnError
from perdure.contract import ContextPage, Mark, ModelCall, PageRequest
from perdure.messages import Message, Role, as_blocks, chain_all, context_origin
from perdure.session import Session, change, with_message
from perdure.views import context_page
from tests.support.lives import KEY


def message(text: str) -> Message:
    return Message(id=text, role=Role.USER, content=as_blocks(text))


def conversation(*texts: str, summary: str = "") -> Session:
    session = Session.new(KEY)
    session = rewritten(session, (), summary=summary)
    for text in texts:
        session = with_message(session, message(text))
    return session


def rewritten(session: Session, messages: tuple[Message, ...], *, summary: str) -> Session:
    """Return the session with another context, as clearing and compacting leave it."""
    state = change(session.state, context=messages, summary=summary, revision=session.state.revision + 1)
    head = chain_all(context_origin(summary), messages)
    return change(session, state=state, head=head, known=Mark(position=0, digest=context_origin(summary)))


def call_of(session: Session, *, base: int | None = None, delta: bool = True) -> ModelCall:
    """Return the call that a session would make, with its known prefix anywhere."""
    context = session.state.context
    position = session.known.position if base is None else base
    mark = Mark(position=position, digest=chain_all(context_origin(session.state.summary), context[:position]))
    return ModelCall(
        agent_id=KEY.agent_id,
        session_id=KEY.session_id,
        user_id=KEY.user_id,
        turn_id="t",
        run_id="r",
        step=1,
        operation_id="o",
        base=mark,
        head=session.mark,
        delta=context[position:] if delta else None,
    )


@dataclass
class Reader:
    """Reads pages of a session as it is now, and lets others go first."""

    session: Session
    limit: int = 10_000
    later: tuple[int, Session] | None = None
    pages: list[PageRequest] = field(default_factory=list[PageRequest])

    async def __call__(self, request: PageRequest) -> ContextPage:
        await asyncio.sleep(0)
        if self.later is not None and len(self.pages) == self.later[0]:
            self.session = self.later[1]
        self.pages.append(request)
        return context_page(self.session, change(request, limit=self.limit))


def load(cache: ContextCache, call: ModelCall, reader: Reader) -> Context:
    return asyncio.run(cache.load(KEY.workflow_id, call, reader))


class ContextMachine(RuleBasedStateMachine):
    """Workers with small caches, a session whose context grows and is rewritten, and calls that are made late.

    The model is the plainest one: what the session's context was when the call was made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.session = conversation()
        self.caches = [ContextCache(max_bytes=size) for size in (10_000_000, 10_000_000, 700, 0)]
        self.count = 0

    calls = Bundle[tuple[ModelCall, Session]]("calls")

    @rule(number=st.integers(1, 4), known=st.booleans())
    def more_is_said(self, number: int, known: bool) -> None:  # noqa: FBT001
        for _ in range(number):
            self.count += 1
            self.session = with_message(self.session, message(f"message {self.count}"))
        if known:
            self.session = change(self.session, known=self.session.mark)

    @rule(summary=st.sampled_from(["", "so far", "so far, again"]), kept=st.integers(0, 2))
    def the_context_is_cleared_or_rewritten(self, summary: str, kept: int) -> None:
        context = self.session.state.context
        self.session = rewritten(self.session, context[len(context) - kept :] if kept else (), summary=summary)

    @rule(back=st.integers(1, 3))
    def the_last_messages_are_taken_back(self, back: int) -> None:
        state = self.session.state
        self.session = rewritten(self.session, state.context[:-back], summary=state.summary)

    @rule(at=st.integers(0, 30))
    def an_older_message_is_amended(self, at: int) -> None:
        """A late result takes the place of the one that said that it was unknown."""
        context = list(self.session.state.context)
        if context:
            self.count += 1
            context[at % len(context)] = message(f"amended {self.count}")
            self.session = rewritten(self.session, tuple(context), summary=self.session.state.summary)

    @rule(made=calls)
    def the_workflow_is_reset(self, made: tuple[ModelCall, Session]) -> None:
        """To an earlier moment. What workers remember is from a future that did not happen."""
        self.session = made[1]

    @rule(target=calls, base=st.integers(0, 30), delta=st.sampled_from(["whole", "missing", "stale"]))
    def a_call_is_made(self, base: int, delta: str) -> tuple[ModelCall, Session]:
        position = min(base, len(self.session.state.context))
        call = call_of(self.session, base=position, delta=delta != "missing")
        if delta == "stale" and call.delta:
            call = change(call, delta=(message("never said"), *call.delta[1:]))
        return call, self.session

    @rule(made=calls, worker=st.integers(0, 3), limit=st.sampled_from([1, 2, 10_000]))
    def a_worker_loads(self, made: tuple[ModelCall, Session], worker: int, limit: int) -> None:
        self.check(self.caches[worker], made, limit)

    @rule(one=calls, other=calls, worker=st.integers(0, 3))
    def a_worker_loads_two_at_once(
        self, one: tuple[ModelCall, Session], other: tuple[ModelCall, Session], worker: int
    ) -> None:
        async def both() -> list[Context | BaseException]:
            loads = [
                self.caches[worker].load(KEY.workflow_id, call, Reader(self.session, limit=1))
                for call, _ in (one, other)
            ]
            return await asyncio.gather(*loads, return_exceptions=True)

        for (call, session), context in zip((one, other), asyncio.run(both()), strict=True):
            self.check_context(call, session, context)

    @rule(made=calls, worker=st.integers(0, 3), pages=st.integers(0, 3), kept=st.integers(0, 3))
    def a_worker_loads_while_the_context_changes(
        self, made: tuple[ModelCall, Session], worker: int, pages: int, kept: int
    ) -> None:
        """Others go on meanwhile: it may have moved on then, and is never a mixture of both."""
        call, session = made
        context = self.session.state.context
        later = with_message(rewritten(self.session, context[:kept], summary=""), message("meanwhile"))
        reader = Reader(self.session, limit=1, later=(pages, later))
        try:
            loaded = load(self.caches[worker], call, reader)
        except ContextMovedOnError:
            assert reader.pages
        else:
            self.check_context(call, session, loaded)

    @rule(made=calls, worker=st.integers(0, 1), later=st.lists(calls, max_size=3))
    def a_worker_with_room_reads_nothing_twice(
        self, made: tuple[ModelCall, Session], worker: int, later: list[tuple[ModelCall, Session]]
    ) -> None:
        """Also when calls come in between that are late: a prefix of what is known needs no reading, and takes none."""
        cache, call = self.caches[worker], made[0]
        try:
            load(cache, call, Reader(self.session))
        except ContextMovedOnError:
            return
        late = [each for each in later if cache.peek(KEY.workflow_id, each[0].head) is not None]
        for each, session in (*late, made):
            reader = Reader(self.session)
            self.check_context(each, session, load(cache, each, reader))
            assert reader.pages == []

    @rule(made=calls)
    def a_worker_that_knows_nothing_reads_each_page_once(self, made: tuple[ModelCall, Session]) -> None:
        """From the session itself, without what came with the call."""
        call, session = change(made[0], delta=None), made[1]
        reader = Reader(session, limit=2)
        assert load(ContextCache(1_000_000), call, reader).messages == session.state.context
        count = len(session.state.context)
        assert [page.after for page in reader.pages] == list(range(0, max(count, 1), 2))

    @invariant()
    def no_cache_holds_more_than_its_bytes(self) -> None:
        for cache in self.caches:
            assert cache.size <= cache.max_bytes

    @rule(worker=st.integers(0, 3))
    def a_worker_forgets(self, worker: int) -> None:
        self.caches[worker].drop(KEY.workflow_id)

    @rule(made=calls, worker=st.integers(0, 3), answer=st.sampled_from(["yes", "no"]))
    def a_worker_remembers_its_answer(self, made: tuple[ModelCall, Session], worker: int, answer: str) -> None:
        """What the model activity does after a call; the session may or may not take the answer."""
        cache = self.caches[worker]
        context = cache.peek(KEY.workflow_id, made[0].head)
        if context is not None:
            cache.keep(KEY.workflow_id, context.plus([message(answer)]))

    def check(self, cache: ContextCache, made: tuple[ModelCall, Session], limit: int) -> None:
        call, session = made
        try:
            context: Context | BaseException = load(cache, call, Reader(self.session, limit))
        except ContextMovedOnError as error:
            context = error
        self.check_context(call, session, context)

    def check_context(self, call: ModelCall, session: Session, context: Context | BaseException) -> None:
        if isinstance(context, BaseException):
            assert isinstance(context, ContextMovedOnError)
            # Right only if the session's context really is another one now, not just a longer one.
            now = self.session.state
            assert (now.summary, now.context[: call.head.position]) != (session.state.summary, session.state.context)
            return
        assert context.messages == session.state.context
        assert context.summary == session.state.summary
        assert context.mark == call.head


TestContextMachine = ContextMachine.TestCase
TestContextMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_the_worker_that_made_the_last_call_reads_nothing() -> None:
    """B57: its own answer is in the cache, and what is new came with the call."""
    session = conversation("one", "two")
    cache = ContextCache(10_000_000)
    reader = Reader(session)
    context = load(cache, call_of(session, base=0), reader)
    cache.keep(KEY.workflow_id, context.plus([message("three")]))
    for text in ("three", "four"):
        session = with_message(session, message(text))
    assert load(cache, call_of(session, base=3), reader).messages == session.state.context
    assert reader.pages == []


def test_a_worker_that_never_saw_the_session_reads_it_page_by_page() -> None:
    """B5: from the start, and then only what is missing."""
    session = conversation("one", "two", "three", summary="so far")
    cache = ContextCache(10_000_000)
    reader = Reader(session, limit=1)
    call = call_of(session, base=3)
    assert load(cache, call, reader).messages == session.state.context
    assert [page.after for page in reader.pages] == [0, 1, 2]
    session = with_message(session, message("four"))
    reader = Reader(session)
    assert load(cache, call_of(session, base=4), reader).messages == session.state.context
    assert [page.after for page in reader.pages] == [3]
    assert (cache.hits, cache.misses) == (0, 2)


def test_an_earlier_part_of_what_is_cached_is_loaded_without_reading() -> None:
    """B5: another attempt at a call whose answer was cached already."""
    session = conversation("one", "two")
    call = call_of(session)
    cache = ContextCache(10_000_000)
    context = load(cache, call, Reader(session))
    cache.keep(KEY.workflow_id, context.plus([message("an answer that was lost")]))
    reader = Reader(session)
    assert load(cache, call, reader).messages == session.state.context
    assert reader.pages == []


def test_what_came_with_a_call_is_used_only_if_it_leads_to_the_calls_context() -> None:
    """B5: a delta that is not the session's own is not believed, whatever it is a delta of."""
    session = conversation("one", "two")
    for base in (0, 1):
        cache = ContextCache(10_000_000)
        cache.keep(KEY.workflow_id, Context.empty().plus(session.state.context[:1]))
        call = change(call_of(session, base=base), delta=(message("never said"),) * (2 - base))
        reader = Reader(session)
        assert load(cache, call, reader).messages == session.state.context
        assert reader.pages


def test_a_call_whose_context_is_gone_says_so() -> None:
    """B8: cleared between the call and its reading; a wrong context is impossible."""
    session = conversation("one", "two")
    call = call_of(session, base=2)
    cleared = rewritten(session, (), summary="")
    for now in (cleared, conversation("other", "words"), conversation("one", "two", summary="a summary")):
        with pytest.raises(ContextMovedOnError):
            load(ContextCache(10_000_000), call, Reader(now))


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 400)), max_size=12), st.integers(0, 2000))
def test_a_cache_never_holds_more_than_its_bytes(kept: list[tuple[int, int]], max_bytes: int) -> None:
    """B57: the ones that were used least recently go first."""
    cache = ContextCache(max_bytes)
    sizes: dict[str, Context] = {}
    for number, length in kept:
        context = Context.empty().plus([message("x" * length)])
        name = f"session {number}"
        cache.keep(name, context)
        sizes.pop(name, None)
        sizes[name] = context
        while sum(each.size for each in sizes.values()) > max_bytes:
            del sizes[next(iter(sizes))]
        held = {name for name in (f"session {number}" for number in range(6)) if _peek(cache, name, kept)}
        assert held == set(sizes)


def _peek(cache: ContextCache, name: str, kept: list[tuple[int, int]]) -> bool:
    marks = [Context.empty().plus([message("x" * length)]).mark for _, length in kept]
    return any(cache.peek(name, mark) is not None for mark in marks)


def test_a_late_call_does_not_shorten_what_is_known() -> None:
    """Another attempt at an older call comes to a worker that has gone on meanwhile."""
    session = conversation("one", "two")
    late = call_of(session)
    for text in ("three", "four"):
        session = with_message(session, message(text))
    call, cache = call_of(session, base=4, delta=False), ContextCache(10_000_000)
    load(cache, call, Reader(session))
    for each in (late, call):
        reader = Reader(session)
        load(cache, each, reader)
        assert reader.pages == []


def test_a_part_of_a_long_context_is_cut_out_and_not_made_again() -> None:
    """The digests and sizes of the parts are those of contexts of their own."""
    texts = [f"message {number}" for number in range(50)]
    context = Context.empty("so far").plus([message(text) for text in texts])
    for number in (0, 1, 49, 50):
        part = Context.empty("so far").plus([message(text) for text in texts[:number]])
        assert context.upto(part.mark) == part
    assert context.upto(change(context.mark, position=51)) is None


@pytest.mark.parametrize("known", [0, 2, 4])
@pytest.mark.parametrize("after", [0, 1, 2, 3, 4])
def test_a_page_goes_on_where_the_asker_is_wherever_the_session_was_last_known(known: int, after: int) -> None:
    session = conversation("one", "two", "three", "four", summary="so far")
    mark = call_of(session, base=known).base
    session = change(session, known=mark)
    right = call_of(session, base=after).base.digest
    assert context_page(session, PageRequest(after=after, digest=right)).start == after
    assert context_page(session, PageRequest(after=after, digest="0" * 32)).start == 0


def test_a_long_context_is_asked_for_its_digest_once_for_all_its_pages() -> None:
    """A digest in the middle costs the session a way through all its messages: with each page it would be quadratic."""
    session = conversation(*(f"message {number}" for number in range(20)))
    reader = Reader(session, limit=2)
    load(ContextCache(10_000_000), call_of(session, base=20), reader)
    assert [page.digest is not None for page in reader.pages] == [True] + [False] * 9


def test_the_size_of_a_context_is_counted_with_its_summary() -> None:
    """B62: a summary may be long too."""
    assert Context.empty("x" * 500).size == 500
    one = Context.empty("xx").plus([message("hello")])
    assert one.size == 2 + len(message("hello").model_dump_json())
    assert one.upto(replace(one).mark) is one
