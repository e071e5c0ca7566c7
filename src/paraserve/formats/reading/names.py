"""Names and ids of calls: which declared tool a model meant, and the id that the client gets.

Never knows arguments or markup. Invariant: a name that leaves this module is one that was declared (or, where the
caller allows undeclared ones, exactly what the model wrote).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection

from paraserve.formats.spec import IdStyle

_CANONICAL = re.compile(r"functions\.(?P<name>.+):[0-9]+", re.DOTALL)
_PREFIX = re.compile(r"functions?[._:]?")
_NAMESPACE = re.compile(r"[.:/]")
_COUNTER = re.compile(r"[:_.\-]?[0-9]*")
_NINE = re.compile(r"[A-Za-z0-9]{9}")
_ALPHANUMERICS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def generic_id() -> str:
    return "call_" + secrets.token_hex(12)


def nine_alphanumerics() -> str:
    return "".join(secrets.choice(_ALPHANUMERICS) for _ in range(9))


def id_maker(style: IdStyle) -> Callable[[], str]:
    return nine_alphanumerics if style == "nine" else generic_id


def call_id(style: IdStyle, name: str, index: int, written: str, new_id: Callable[[], str]) -> str:
    """The id of a call: the family's own spelling where it has one. ``index`` counts over the conversation."""
    if style == "counted":
        return f"functions.{name}:{index}"
    if style == "nine" and _NINE.fullmatch(written):
        return written
    return new_id()


def resolve_id(written: str, declared: Collection[str]) -> str | None:
    """The declared tool that an id names, however the model spelled it: ``functions.NAME:0`` and what is near it.

    A longer name wins over a shorter one, so that ``functions_read_file_3`` is ``read_file`` and never ``read``. A bare
    counter names the only tool there is.
    """
    text = written.strip()
    if (match := _CANONICAL.fullmatch(text)) and match["name"].strip() in declared:
        return match["name"].strip()
    prefix = _PREFIX.match(text)
    for body in (text, text[prefix.end() :]) if prefix else (text,):
        for name in sorted(declared, key=len, reverse=True):
            if body.startswith(name) and _COUNTER.fullmatch(body, len(name)):
                return name
    if text.isdigit() and len(declared) == 1:
        return next(iter(declared))
    return None


def resolve_name(written: str, declared: Collection[str]) -> str | None:
    """The declared tool of this name, or of what a namespace leaves of it (``functions.read``, ``fs:read``)."""
    name = written.strip()
    ends = [0, *(mark.end() for mark in _NAMESPACE.finditer(name))]
    return next((name[end:] for end in ends if name[end:] in declared), None)


def undeclared_name(written: str) -> str:
    """The name in an id that names no declared tool."""
    match = _CANONICAL.fullmatch(written.strip())
    return match["name"].strip() if match else written.strip()
