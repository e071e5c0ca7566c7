"""What a client calls that which an error about the chat request names, in an API whose bodies become chat requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from paraserve.protocol.errors import RequestError

MESSAGE = r"\bmessages\[(?P<message>\d+)\](?:\.content\[\d+\])?"


@dataclass(frozen=True, slots=True)
class ClientNames:
    """Args:
    named: the chat request's names in a text.
    own: the client's own for one of them.
    """

    named: re.Pattern[str]
    own: Callable[[re.Match[str]], str]

    @contextmanager
    def told(self) -> Iterator[None]:
        """An error inside names the client's own fields."""
        try:
            yield
        except RequestError as error:
            self.put_into(error)
            raise

    def put_into(self, error: RequestError) -> None:
        error.message = self.named.sub(self.own, error.message)
        error.param = error.param and self.named.sub(self.own, error.param)
