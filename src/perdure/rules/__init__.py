"""How a session changes, by what happened. `perdure.advance` is the way in.

    asked         what people ask: commands that were accepted
    reported      what model and tool calls report
    calls         the tool calls of the current step
    permitting    whether a tool call may run
    interactions  what a suspended turn waits for, and the answers
    outcomes      what became of tool calls, also of those that nobody knows of
    changes       the state changed from outside
    compacting    a summary in the place of older messages
    archiving     what goes to the archive, and what is let go of then
    asides        input that waits for the next step
    runs          the record of a turn's runs
    ending        how a run ends, and what its context looks like then
    progress      what follows of itself: steps and turns that are due

Functions take a session and return the session after. None of them raises, whatever the session's state.
"""
