"""`perdure chat`: a conversation at the terminal, or over a pipe."""

from perdure.cli.chat.command import register

__all__ = ["register"]
