"""The events of one SGLang reply, made incremental.

By default SGLang repeats the whole reply in every event; with ``--incremental-streaming-output`` an event holds what
is new. Nothing says which, so it is recognised: ``completion_tokens`` counts all tokens, and is the length of
``output_ids`` in the one case and more in the other. Two invariants: every id comes out once, in order; and an event
costs no Python object for what was already seen: old ids and log probabilities stay undecoded bytes, of which only
the tail is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from paraserve.engines.base import LEAST_LOGPROB, EngineChunk, EngineError, EngineRequest, Finish, TokenLogprob
from paraserve.engines.checks import UNREADABLE, garbled
from paraserve.engines.http.client import broken
from paraserve.engines.http.generation import DONE
from paraserve.engines.http.refusals import engine_message
from paraserve.engines.http.remote import cached_prompt_tokens
from paraserve.engines.sglang.ends import finish_of, stops_kept_here, through_stop

Refused = Callable[[int, str, EngineRequest], EngineError]

_EMPTY = msgspec.Raw(b"[]")
_ABSENT = msgspec.Raw()
_NONE = (b"", b"null")

_Logprob = tuple[float | None, int, str | None]


class _FinishReason(msgspec.Struct):
    type: str
    matched: int | str | list[int] | None = None
    message: str = ""
    status_code: int | None = None


class _PrefillMeta(msgspec.Struct):
    cached_tokens: int | None = None


class _MetaInfo(msgspec.Struct):
    finish_reason: _FinishReason | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    prefill_meta_info: _PrefillMeta | None = None
    output_token_logprobs: msgspec.Raw = _EMPTY
    output_token_logprobs_length: int | None = None
    """Of the whole list, in either kind of stream."""
    output_top_logprobs: msgspec.Raw = _EMPTY
    input_token_logprobs: msgspec.Raw = _EMPTY
    input_top_logprobs: msgspec.Raw = _EMPTY


class _Event(msgspec.Struct):
    """``text`` is not declared: it is skipped without being decoded."""

    output_ids: msgspec.Raw = _EMPTY
    meta_info: _MetaInfo | None = None
    error: msgspec.Raw = _ABSENT


class _ErrorBody(msgspec.Struct):
    code: int | str | None = None
    status_code: int | None = None


_Item = TypeVar("_Item")

_NOT_PLAIN = (b'"', b" ", b"[]", b"null,[", b"],null")
"""What keeps a list of lists from being cut at its boundaries: text, spaces, items that are empty or null."""

_decode_event = msgspec.json.Decoder(_Event).decode
_decode_ids = msgspec.json.Decoder(list[int]).decode
_decode_logprobs = msgspec.json.Decoder(list[_Logprob]).decode
_decode_top = msgspec.json.Decoder(list[list[_Logprob] | None]).decode


class SGLangStream:
    """`EventDecoder` of SGLang."""

    finish_held = False  # the finish and the counts come in one event
    name = None  # the rid that it was given is the only one

    def __init__(self, request: EngineRequest, refused: Refused) -> None:
        self._request = request
        self._refused = refused
        self._seen = 0
        self._first: bytes = b""
        self._cumulative: bool | None = None
        self._prompt_logprobs_due = request.prompt_logprobs
        self._stops = stops_kept_here(request)
        self.ended = self.cut = False

    def decode(self, payload: bytes) -> EngineChunk | None:
        if payload == DONE:
            raise broken()
        try:
            event = _decode_event(payload)
            if bytes(event.error) not in _NONE:
                raise self._error(event.error)
            if (meta := event.meta_info) is None:
                raise garbled()
            return self._chunk(bytes(event.output_ids), meta)
        except UNREADABLE as error:
            raise garbled() from error

    def _chunk(self, raw_ids: bytes, meta: _MetaInfo) -> EngineChunk | None:
        finish = None if meta.finish_reason is None else finish_of(meta.finish_reason, self._refusal)
        start, ids = self._new_ids(raw_ids, meta.completion_tokens, finish)
        if not ids and finish is None:
            return None
        if (end := through_stop(ids, self._stops)) is not None:
            ids, self.cut, finish = ids[:end], finish is None, Finish("stop", ids[end - 1])
        logprobs = None
        if self._request.logprobs is not None:
            logprobs = read_logprobs(meta, start if self._cumulative else 0, ids, self._request.logprobs)
        chunk = EngineChunk(ids, logprobs, finish, meta.prompt_tokens, _cached(meta))
        if self._prompt_logprobs_due and (ids or finish):
            self._prompt_logprobs_due = False
            chunk.prompt_logprobs = read_prompt_logprobs(meta, self._request.logprobs or 0)
        self.ended = finish is not None
        return chunk

    def _refusal(self, status: int, message: str) -> EngineError:
        return self._refused(status, message, self._request)

    def _new_ids(self, raw: bytes, completed: int | None, finish: Finish | None) -> tuple[int, list[int]]:
        """The place of the first new id among the reply's, and the new ids."""
        count = count_items(raw)
        start = self._seen
        if not count:
            return start, []
        if not start:
            self._first = raw
            self._seen = count
            return 0, _decode_ids(raw)
        if self._cumulative is None:
            self._cumulative = self._is_cumulative(raw, count, completed)
        if not self._cumulative:
            self._seen += count
            return start, _decode_ids(raw)
        if count < start:
            if finish is None:
                raise garbled()
            return start, []
        self._seen = count
        return start, last_ids(raw, count - start)

    def _is_cumulative(self, raw: bytes, count: int, completed: int | None) -> bool:
        if completed == count:
            return True
        if completed == self._seen + count:
            return False
        # A count that fits neither (a cumulative list may run ahead of it): the ids themselves tell.
        old = self._first.rstrip(b" ]")
        return count > self._seen and raw.startswith(old) and raw[len(old) : len(old) + 1] in (b",", b" ")

    def _error(self, raw: msgspec.Raw) -> EngineError:
        body = bytes(raw)
        try:
            told = msgspec.json.decode(body, type=_ErrorBody)
        except UNREADABLE:
            told = _ErrorBody()
        status = told.code if isinstance(told.code, int) else told.status_code
        return self._refusal(status or 500, engine_message(body))


def count_items(raw: bytes) -> int:
    """How many numbers a JSON list of numbers has."""
    return 0 if not raw.strip(b"[] \n\r\t") else raw.count(b",") + 1


def last_ids(raw: bytes, wanted: int) -> list[int]:
    """The last ``wanted`` numbers of a JSON list of more than that."""
    if not wanted:
        return []
    at = len(raw)
    for _ in range(wanted):
        at = raw.rfind(b",", 0, at)
    return _decode_ids(b"[" + raw[at + 1 :])


def read_logprobs(meta: _MetaInfo, start: int, ids: Sequence[int], top: int) -> list[TokenLogprob]:
    """The log probabilities of ``ids``, which begin at ``start`` of the event's lists.

    Raises `EngineError` where the lists are not those of the ids: a wrong number must not look like a right one.
    """
    if not ids:
        return []
    length = meta.output_token_logprobs_length or 0
    values = _from(_decode_logprobs, bytes(meta.output_token_logprobs), start, length, b"],[")[: len(ids)]
    if [value[1] for value in values] != list(ids):
        raise garbled()
    ranked: Sequence[list[_Logprob] | None] = ()
    if top:
        ranked = _from(_decode_top, bytes(meta.output_top_logprobs), start, length, b"]],[[")[: len(ids)]
    return [
        TokenLogprob(
            token, LEAST_LOGPROB if value is None else value, _pairs(ranked[i], top) if i < len(ranked) else ()
        )
        for i, (value, token, _) in enumerate(values)
    ]


def read_prompt_logprobs(meta: _MetaInfo, top: int) -> list[TokenLogprob | None]:
    values = _decode_logprobs(meta.input_token_logprobs)
    ranked = _decode_top(meta.input_top_logprobs) if top else []
    return [
        None if value is None else TokenLogprob(token, value, _pairs(ranked[i], top) if i < len(ranked) else ())
        for i, (value, token, _) in enumerate(values)
    ]


def _from(decode: Callable[[bytes], list[_Item]], raw: bytes, start: int, length: int, boundary: bytes) -> list[_Item]:
    """The items from ``start`` on of a JSON list of lists that has ``length`` items, 0 where that is not known.

    With a known length only they are decoded: found from the end by the ``boundary`` between two items, which is sure
    where the piece that it cuts off holds no text and nothing else that could look like one.
    """
    wanted = length - start
    if 0 < wanted < length:
        at = len(raw)
        for _ in range(wanted):
            at = raw.rfind(boundary, 0, at)
            if at < 0:
                break
        piece = raw[at + boundary.index(b",") + 1 :]
        if at >= 0 and not any(odd in piece for odd in _NOT_PLAIN):
            items = decode(b"[" + piece)
            if len(items) == wanted:
                return items
    return decode(raw)[start:]


def _pairs(ranked: Sequence[_Logprob] | None, top: int) -> tuple[tuple[int, float], ...]:
    pairs = ((token, value) for value, token, _ in ranked or () if value is not None)
    return tuple(sorted(pairs, key=lambda pair: -pair[1])[:top])


def _cached(meta: _MetaInfo) -> int | None:
    """The prefill side's count where a router hands both on."""
    prefill = meta.prefill_meta_info
    reported = meta.cached_tokens if prefill is None or prefill.cached_tokens is None else prefill.cached_tokens
    return cached_prompt_tokens(reported, meta.prompt_tokens)
