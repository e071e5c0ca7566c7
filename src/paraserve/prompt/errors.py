"""What can be wrong with a prompt: the client's messages, or the operator's checkpoint.

Never knows HTTP beyond the fact that a `PromptError` is the client's fault (400).
"""

from __future__ import annotations

from paraserve.start_error import StartError


class PromptError(Exception):
    """The request's messages cannot become a prompt.

    Args:
        message: for the client: no path, no Python repr.
        param: the field to blame, as deep as known (``messages[3].content[0]``).
        code: a word for ``error.code``.
    """

    def __init__(self, message: str, param: str = "messages", code: str = "invalid_value") -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code


class CheckpointError(StartError):
    """A checkpoint's files cannot be used: what is missing or wrong, and what to do."""
