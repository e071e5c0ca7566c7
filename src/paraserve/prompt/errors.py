"""What can be wrong with a prompt: the client's messages.

Never knows HTTP beyond the fact that a `PromptError` is the client's fault (400).
"""

from __future__ import annotations

from paraserve.protocol.error_codes import ErrorCode


class PromptError(Exception):
    """The request's messages cannot become a prompt.

    Args:
        message: for the client: no path, no Python repr.
        param: the field to blame, as deep as known (``messages[3].content[0]``).
        code: of the table, for ``error.code``.
    """

    def __init__(self, message: str, param: str = "messages", code: ErrorCode = ErrorCode.INVALID_VALUE) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code
