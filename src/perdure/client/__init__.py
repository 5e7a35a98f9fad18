"""Talking to sessions: `Sessions` finds and opens them, `SessionHandle` is one of them.

handle      one session: a method for each command and each thing that can be read, made of these:
addressed   its address, and reading
turns       handing turns over, waiting for them, taking hold of them
answers     what people and systems outside answer
states      changes of its state
sessions    the sessions of a namespace: finding, creating, listing
forgetting  ending sessions of a user for good, with all that was kept of them
opening     how a session comes into being, and what it starts with
making      commands, made and checked before they are sent
waiting     waiting for turns: one wait for all in a process who wait for the same
remembering what a session has let go of, read from the archive
reading     what is too large for one answer, and what workers read
"""

from perdure.client.handle import SessionHandle
from perdure.client.reading import read_checkpoint, read_page, read_transcript, read_wanted
from perdure.client.sessions import Sessions, list_query

__all__ = ["SessionHandle", "Sessions", "list_query", "read_checkpoint", "read_page", "read_transcript", "read_wanted"]
