"""What a session hands over to the archive, and what it is afterwards."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from perdure.commands import Partial, SubmitTurn, WaitTurn
from perdure.contract import Limits, PageRequest, Renewal, Slice
from perdure.decide import KeepTranscript, decide
from perdure.errors import NotResumable, RunConflict, SessionClosed, TurnConflict, TurnNotFound
from perdure.facts import Archived, ArchiveFailed, ArchiveWanted
from perdure.former import Former, find_former, has_run, short
from perdure.messages import TextBlock
from perdure.permissions import PermissionContext, PermissionMode
from perdure.renewal import RunSize, renewal_due
from perdure.results import TranscriptEntry, TurnStatus
from perdure.rules.archiving import (
    ARCHIVE_BYTES,
    ARCHIVE_ENTRIES,
    FULLY_KNOWN,
    KEPT_BYTES,
    WORDS_KEPT,
    begun_blind,
    reopened,
)
from perdure.session import Session, change
from perdure.turns import REMEMBERED_TURNS
from perdure.values import json_bytes
from perdure.views import checkpoint_slice, submit_receipt, transcript_page, turn_view
from tests.support.lives import KEY, Call, Life

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Shelf:
    """An archive in memory, and a session that hands over to it."""

    life: Life = field(default_factory=lambda: Life(change(Session.new(KEY), archives=True)))
    entries: dict[int, TranscriptEntry] = field(default_factory=dict[int, TranscriptEntry])

    @property
    def session(self) -> Session:
        return self.life.session

    def wish(self) -> KeepTranscript | None:
        return next((wish for wish in decide(self.session) if isinstance(wish, KeepTranscript)), None)

    def carry_out(self, wish: KeepTranscript) -> None:
        """Read what the wish is about from the session, as the activity does."""
        after = wish.call.after
        while after < wish.call.upto:
            page = transcript_page(self.session, PageRequest(after=after))
            for entry in page.entries:
                self.entries.setdefault(entry.seq, entry)
            after = page.entries[-1].seq
        self.life.take(Archived(self.life.now(), wish.call.upto, checkpoint=wish.call.checkpoint))

    def archive(self) -> None:
        """Hand over whatever there is."""
        self.life.take(ArchiveWanted(self.life.now()))
        if (wish := self.wish()) is not None:
            self.carry_out(wish)

    def talk(self, turns: int, first: int = 1) -> None:
        for number in range(first, first + turns):
            self.life.submit(f"hello {number}", turn_id=f"t{number}")
            self.life.answer(f"you said {number}")

    def whole(self) -> list[int]:
        """The numbers of all entries, wherever they are."""
        return sorted({*self.entries, *(entry.seq for entry in self.session.transcript)})


def test_what_was_said_goes_to_the_archive_when_there_is_enough_of_it() -> None:
    """B61: and not before, since each way there leaves events."""
    shelf = Shelf()
    while shelf.session.last_seq < ARCHIVE_ENTRIES - 4:
        assert shelf.wish() is None
        shelf.talk(1, shelf.session.turn_count + 1)
    shelf.talk(1, shelf.session.turn_count + 1)
    wish = shelf.wish()
    assert wish is not None
    assert (wish.call.after, wish.call.upto, wish.call.checkpoint) == (0, shelf.session.last_seq, False)
    shelf.talk(1, shelf.session.turn_count + 1)
    later = shelf.wish()
    assert later is not None
    assert later.operation_id == wish.operation_id, "what has come since does not begin it anew"
    shelf.carry_out(wish)
    assert shelf.wish() is None
    assert shelf.session.archived == wish.call.upto


def test_few_large_entries_go_to_the_archive_too() -> None:
    """B61: it is their weight that is carried."""
    shelf = Shelf()
    shelf.life.submit("x" * ARCHIVE_BYTES, turn_id="t1")
    assert shelf.wish() is not None


def test_a_session_that_began_before_there_was_an_archive_hands_nothing_over() -> None:
    """B63: its history would not replay."""
    shelf = Shelf(Life())
    shelf.talk(1)
    shelf.life.submit("x" * ARCHIVE_BYTES, turn_id="large")
    shelf.life.take(ArchiveWanted(shelf.life.now()))
    assert shelf.wish() is None


def test_what_is_in_the_archive_is_let_go_of_and_nothing_is_lost() -> None:
    """B61: each entry once, in order."""
    shelf = Shelf()
    for number in range(1, 200):
        shelf.life.submit("x" * 500, turn_id=f"t{number}")
        shelf.life.answer("y" * 500)
        if number % 20 == 0:
            shelf.archive()
    assert shelf.whole() == list(range(1, shelf.session.last_seq + 1))
    shelf.archive()
    assert sum(json_bytes(entry) for entry in shelf.session.transcript) < 2 * KEPT_BYTES
    assert len(shelf.entries) == shelf.session.last_seq


def test_pages_of_the_transcript_have_no_gap() -> None:
    """B61: an entry that stays for the sake of a turn is not taken for the end of what is live."""
    shelf = Shelf()
    shelf.life.limits = Limits(max_steps=1_000)
    shelf.life.submit("what is the weather?", turn_id="long")
    for _ in range(200):
        shelf.life.answer("let me see", Call())
        shelf.life.finish(0, "x" * 500)
    shelf.archive()
    page = transcript_page(shelf.session, PageRequest())
    numbers = [entry.seq for entry in page.entries]
    assert numbers == list(range(numbers[0], shelf.session.last_seq + 1))
    assert numbers[0] > 1
    assert page.archived == shelf.session.last_seq
    kept = [entry.seq for entry in shelf.session.transcript]
    assert kept[0] == 1, "what the running turn was asked stays"


def test_the_last_turns_are_read_without_the_archive() -> None:
    """B13: however much was said in them."""
    shelf = Shelf()
    for number in range(1, 11):
        shelf.life.submit("x" * KEPT_BYTES, turn_id=f"t{number}")
        shelf.life.answer(f"answer {number}" + "y" * KEPT_BYTES)
    shelf.archive()
    for number in range(11 - WORDS_KEPT, 11):
        view = turn_view(shelf.session, f"t{number}")
        assert view is not None
        assert not view.archived
        assert view.output.startswith(f"answer {number}")
        assert view.input == (TextBlock("x" * KEPT_BYTES),)
    first = turn_view(shelf.session, "t1")
    assert first is not None
    assert first.archived
    assert (first.status, first.steps) == (TurnStatus.COMPLETED, 1)


def test_an_archive_that_is_down_is_tried_again_when_more_has_come() -> None:
    """B61: nothing waits for it, and nothing is lost."""
    shelf = Shelf()
    shelf.talk(120)
    wish = shelf.wish()
    assert wish is not None
    shelf.life.take(ArchiveFailed(shelf.life.now()))
    assert shelf.wish() is None
    shelf.life.take(ArchiveWanted(shelf.life.now()))
    assert shelf.wish() is None, "a new run does not wait for it either"
    shelf.talk(30, 121)
    again = shelf.wish()
    assert again is not None
    assert again.operation_id != wish.operation_id
    shelf.carry_out(again)
    assert shelf.whole() == list(range(1, shelf.session.last_seq + 1))


def test_an_archive_that_is_down_is_tried_again_when_something_heavy_has_come() -> None:
    """B61: what is carried is bounded by weight, however few the entries are."""
    shelf = Shelf()
    tries = 0
    for number in range(1, 13):
        shelf.life.submit("x" * (ARCHIVE_BYTES // 4), turn_id=f"t{number}")
        shelf.life.answer("y")
        if shelf.wish() is not None:
            tries += 1
            shelf.life.take(ArchiveFailed(shelf.life.now()))
    assert tries == 3
    assert len(shelf.whole()) == shelf.session.last_seq


def test_without_an_archive_nothing_is_said_to_be_elsewhere() -> None:
    """B13: the words of old turns are here or nowhere."""
    shelf = Shelf()
    shelf.talk(FULLY_KNOWN // 2)
    shelf.life.take(Archived(shelf.life.now(), shelf.session.last_seq, kept=False))
    view = turn_view(shelf.session, "t1")
    assert view is not None
    assert not view.archived
    assert (view.input, view.output) == ((TextBlock("hello 1"),), "you said 1")


def test_without_an_archive_a_session_keeps_the_end_of_its_transcript() -> None:
    """B61: bounded, and it says so."""
    shelf = Shelf()
    for number in range(1, 40):
        shelf.life.submit("x" * 50_000, turn_id=f"t{number}")
        shelf.life.answer("y")
        if (wish := shelf.wish()) is not None:
            shelf.life.take(Archived(shelf.life.now(), wish.call.upto, kept=False))
    assert sum(json_bytes(entry) for entry in shelf.session.transcript) < 1_500_000
    page = transcript_page(shelf.session, PageRequest())
    assert page.archived == 0
    assert page.entries[0].seq > 1


# ---- turns of long ago -------------------------------------------------------------------------------------------


def test_a_turn_of_long_ago_is_recognised_by_its_fingerprint() -> None:
    """B13, B32: a thousand turns back, in bounded memory."""
    shelf = Shelf()
    for number in range(1, 121):
        shelf.talk(1, number)
        if number % 30 == 0:
            shelf.archive()
    session = shelf.session
    assert len(session.turns) == FULLY_KNOWN
    assert session.record("t3") is None
    assert max(map(len, session.former)) <= 60
    assert submit_receipt(session, "t3", repeated=True) is not None
    before = session
    shelf.life.submit("hello 3", turn_id="t3")
    assert shelf.session is before
    with pytest.raises(TurnConflict):
        shelf.life.submit("something else", turn_id="t3")
    with pytest.raises(RunConflict):
        shelf.life.submit("new", turn_id="new", run_id="run-of-t3")
    with pytest.raises(NotResumable, match="completed"):
        shelf.life.resume("t3")
    assert shelf.life.cancel("t3") is before
    shelf.life.command(WaitTurn(turn_id="t3"))
    with pytest.raises(TurnNotFound, match="remembers the last 120"):
        shelf.life.command(WaitTurn(turn_id="t0"))
    view = turn_view(session, "t3")
    assert view is not None
    assert (view.turn_id, view.status, view.archived) == ("t3", TurnStatus.COMPLETED, True)


def test_fingerprints_are_bounded() -> None:
    """B13: the last thousand turns."""
    shelf = Shelf()
    for number in range(1, REMEMBERED_TURNS + 101):
        shelf.talk(1, number)
        if number % 40 == 0:
            shelf.archive()
    session = shelf.session
    assert REMEMBERED_TURNS <= len(session.turns) + len(session.former) <= REMEMBERED_TURNS + 40
    assert session.find("t1") is None
    assert session.find("t200") is not None
    assert sum(map(len, session.former)) < 50_000


def test_a_submit_that_joined_a_turn_of_long_ago_is_still_known() -> None:
    """B13, B14: its turn id means that turn."""
    shelf = Shelf()
    shelf.life.submit("hello", turn_id="t1")
    shelf.life.command(SubmitTurn.model_validate({"input": "and this", "turn_id": "more", "on_busy": "steer"}))
    shelf.life.answer("well")
    shelf.life.answer("done")
    shelf.talk(FULLY_KNOWN + 10, 2)
    shelf.archive()
    view = turn_view(shelf.session, "more")
    assert view is not None
    assert (view.turn_id, view.archived) == ("t1", True)
    with pytest.raises(TurnConflict):
        shelf.life.submit("something else", turn_id="more")


def test_a_turn_that_can_go_on_is_never_forgotten() -> None:
    """B30: a failed turn can be resumed, however many others have come since."""
    shelf = Shelf()
    shelf.life.submit("hello", turn_id="t1")
    shelf.life.interrupt(partial=Partial.DISCARD)
    shelf.talk(FULLY_KNOWN + 20, 2)
    shelf.archive()
    assert shelf.session.record("t1") is not None
    shelf.life.resume("t1")
    assert shelf.session.running is not None


@given(st.text(max_size=30), st.text(max_size=30), st.sampled_from(TurnStatus))
def test_a_fingerprint_goes_to_text_and_back(turn_id: str, run_id: str, status: TurnStatus) -> None:
    """B13: it is what a session carries."""
    one = Former(short(turn_id), short("input"), status, short("first") + short(run_id))
    assert Former.read(str(one)) == one
    assert find_former([str(one)], turn_id) == one
    assert has_run([str(one)], run_id)
    assert has_run([str(one)], "first")
    assert not has_run([str(one)], run_id + "x")


# ---- closing and opening again -----------------------------------------------------------------------------------


def _slices(session: Session) -> Iterator[str]:
    after = 0
    while True:
        part = checkpoint_slice(session, Slice(after=after))
        yield part.text
        after += len(part.text)
        if after >= part.total:
            return


def test_a_closed_session_hands_over_all_of_it_and_comes_back_as_it_was() -> None:
    """B20: what it knows, its rules, and the turns that it has had."""
    shelf = Shelf()
    shelf.talk(3)
    shelf.life.close("done")
    wish = shelf.wish()
    assert wish is not None
    assert wish.call.checkpoint
    text = "".join(_slices(shelf.session))
    before = shelf.session
    shelf.carry_out(wish)
    assert shelf.session.checkpointed
    assert shelf.wish() is None
    again = reopened(Session.model_validate(json.loads(text)), shelf.life.now(), before.last_seq, None)
    assert again.state == before.state
    assert again.last_seq == before.last_seq + 1
    assert not again.closing
    life = Life(again, at=shelf.life.at)
    life.submit("hello 2", turn_id="t2")
    assert life.session is again, "a turn of before is not run again"
    life.submit("and now?", turn_id="t4")
    assert life.said[-1] == ("user", "and now?")
    assert len(life.said) == 7


def test_only_a_closed_session_gives_its_checkpoint() -> None:
    """B20, B31: what a session that was opened again has begun since would be begun once more from it."""
    shelf = Shelf()
    shelf.talk(3)
    shelf.life.close()
    assert checkpoint_slice(shelf.session, Slice()).text
    again = reopened(shelf.session, shelf.life.now(), shelf.session.last_seq, None)
    assert checkpoint_slice(again, Slice()).text == ""


def test_numbers_that_are_taken_are_not_used_again() -> None:
    """B61: those of a life that was ended by force after its checkpoint, too."""
    shelf = Shelf()
    shelf.talk(1)
    closed = shelf.life.close()
    again = reopened(closed, shelf.life.now(), closed.last_seq + 50, None)
    assert again.transcript[-1].seq == closed.last_seq + 51


def test_new_permissions_win_over_those_of_the_checkpoint() -> None:
    """B42: they are given for the session that begins."""
    shelf = Shelf()
    shelf.talk(1)
    given = PermissionContext(mode=PermissionMode.EXPLORE)
    again = reopened(shelf.life.close(), shelf.life.now(), 0, given)
    assert again.state.permission_context == given


def test_what_held_the_queue_of_a_closed_session_holds_it_no_more() -> None:
    """B20: whoever comes back is answered."""
    shelf = Shelf()
    shelf.talk(1)
    shelf.life.pause()
    closed = shelf.life.close()
    life = Life(reopened(closed, shelf.life.now(), 0, None))
    life.submit("hello", turn_id="t9")
    assert life.session.running is not None


def test_a_closed_session_that_the_archive_has_not_got_yet_opens_where_it_is() -> None:
    """B20: an archive that is down keeps nobody out."""
    shelf = Shelf()
    shelf.talk(2)
    shelf.life.close()
    assert shelf.session.closed
    shelf.life.submit("I am back", turn_id="t3")
    assert not shelf.session.closing
    assert shelf.session.running is not None
    assert shelf.wish() is None
    shelf.life.answer("welcome")
    shelf.life.close()
    wish = shelf.wish()
    assert wish is not None
    shelf.carry_out(wish)
    assert shelf.session.checkpointed
    with pytest.raises(SessionClosed):
        shelf.life.submit("too late", turn_id="t4")


def test_what_comes_after_the_checkpoint_asks_for_another() -> None:
    """B25: a tool's late result is in the transcript, and in what comes back."""
    shelf = Shelf()
    shelf.talk(1)
    shelf.life.close()
    wish = shelf.wish()
    assert wish is not None
    shelf.life.session = change(shelf.session, last_seq=shelf.session.last_seq + 1)  # as by an entry
    shelf.life.take(Archived(shelf.life.now(), wish.call.upto, checkpoint=True))
    assert not shelf.session.checkpointed
    assert shelf.wish() is not None


def test_a_session_that_begins_blind_takes_numbers_that_nobody_had() -> None:
    """B61: in milliseconds, so that another one later can't reach them."""
    life = Life(change(Session.new(KEY), archives=True))
    session = begun_blind(life.session, life.at)
    assert session.transcript[-1].seq == int(life.at.timestamp() * 1000) + 1
    assert session.archived == session.last_seq - 1


# ---- new runs ----------------------------------------------------------------------------------------------------

RULES = Renewal()


@pytest.mark.parametrize(
    ("run", "idle", "is_due"),
    [
        (RunSize(100, 10_000, 0), True, False),
        (RunSize(250, 10_000, 0), True, True),
        (RunSize(250, 10_000, 0), False, False),
        (RunSize(250, 10_000, 5_000), True, False),
        (RunSize(250, 20_000, 5_000), True, True),
        (RunSize(500, 20_000, 500_000), True, True),
        (RunSize(1_000, 20_000, 500_000), False, False),
        (RunSize(2_000, 20_000, 500_000), False, True),
        (RunSize(10, 9_000_000, 100), False, True),
        (RunSize(10, 9_000_000, 9_000_000), False, False),
        (RunSize(10, 1_000, 0, suggested=True), False, True),
    ],
)
def test_an_idle_session_begins_a_new_run_early(run: RunSize, idle: bool, is_due: bool) -> None:  # noqa: FBT001
    """B58: but not when the new run would be mostly what was carried."""
    assert renewal_due(RULES, run, idle=idle) is is_due


@settings(max_examples=50)
@given(st.lists(st.integers(0, 5), max_size=60), st.data())
def test_each_entry_is_somewhere_once_whatever_the_archive_does(steps: list[int], data: st.DataObject) -> None:
    """B61: turns, an archive that works, fails, answers late or twice, closing and opening again, new runs."""
    shelf, late = Shelf(), list[Archived]()
    for number, step in enumerate(steps):
        match step:
            case 0 | 1 if not shelf.session.checkpointed:
                shelf.life.submit("x" * data.draw(st.integers(1, 60_000)), turn_id=f"t{number}")
                shelf.life.answer("y")
            case 2:
                shelf.archive()
                late.append(Archived(shelf.life.now(), shelf.session.archived))
            case 3:
                shelf.life.take(ArchiveFailed(shelf.life.now()))
                if late:
                    shelf.life.take(data.draw(st.sampled_from(late)))
            case 4:
                shelf.life.close()
            case _:
                shelf.life.carry_over()
        have = {entry.seq for entry in shelf.session.transcript}
        assert have | set(shelf.entries) == set(range(1, shelf.session.last_seq + 1))
        assert set(range(shelf.session.archived + 1, shelf.session.last_seq + 1)) <= have
