"""What a body may cost before it is whole: time, memory of all together and of one party, and what is in it."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraserve.api.app import create_app
from paraserve.api.body_room import BODIES_AT_ONCE, FREE_BYTES, MOST_ITEMS, MOST_OBJECTS, BodyRoom, Contents
from paraserve.api.inflate import _STEP, inflater
from paraserve.protocol.errors import RequestError
from tests.api.wire import CHAT, USER
from tests.toy import client, deployment, engine
from tests.waiting import until

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACK: dict[str, Callable[[bytes], bytes]] = {
    "identity": bytes,
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}
LARGEST = 2**20
SHARE = BODIES_AT_ONCE * LARGEST // 2


@pytest.mark.parametrize("encoding", PACK)
@given(
    unit=st.binary(max_size=40),
    times=st.sampled_from([1, 7, 10_000, 2 * _STEP // 16]),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_a_body_is_the_same_however_it_is_packed_and_cut_and_comes_in_steps(
    encoding: str, unit: bytes, times: int, cuts: list[int]
) -> None:
    body = unit * times
    packed, unpack = PACK[encoding](body), inflater(encoding)
    edges = [0, *sorted(min(cut, len(packed)) for cut in cuts), len(packed)]
    pieces = [piece for a, b in pairwise(edges) for piece in unpack.pieces(packed[a:b])]
    unpack.finish()
    assert b"".join(pieces) == body
    assert encoding == "identity" or max(map(len, pieces), default=0) <= _STEP


def test_no_party_has_more_than_its_half_and_all_no_more_than_the_whole() -> None:
    room = BodyRoom(LARGEST)
    room.take("a", SHARE)
    for size in (1, LARGEST):
        with pytest.raises(RequestError, match="more than it has room for") as refused:
            room.take("a", size)
        assert (refused.value.status, refused.value.code) == (503, "overloaded")
        assert "retry-after" in refused.value.headers
    room.take("b", SHARE)
    with pytest.raises(RequestError):
        room.take("c", 1)
    room.give_back("a", SHARE)
    room.take("c", 1)


class Slow:
    """Bodies that are begun, and end when they are told to."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._end = asyncio.Event()
        self.tasks: list[asyncio.Task[httpx.Response]] = []

    def begin(self, size: int) -> None:
        async def content() -> AsyncIterator[bytes]:
            yield b" " * size
            await self._end.wait()
            yield json.dumps({"messages": USER}).encode()

        self.tasks.append(asyncio.ensure_future(self._http.post(CHAT, content=content())))

    async def end(self) -> list[int]:
        self._end.set()
        return [response.status_code for response in await asyncio.gather(*self.tasks)]


async def test_slow_clients_hold_their_share_and_a_small_request_is_served_beside_them() -> None:
    app = create_app(deployment(engine(), max_body_size=LARGEST))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://toy") as http:
        slow = Slow(http)
        for _ in range(2):
            slow.begin(LARGEST - 1000)
        await until(lambda: app.state.body_room._held.total() > SHARE - 3000)
        large = await http.post(CHAT, content=b" " * 2 * FREE_BYTES + json.dumps({"messages": USER}).encode())
        assert (large.status_code, large.json()["error"]["code"]) == (503, "overloaded")
        assert (await http.post(CHAT, json={"messages": USER})).status_code == 200
        assert await slow.end() == [200, 200]
        assert app.state.body_room._held.total() == 0
        large = await http.post(CHAT, content=b" " * 2 * FREE_BYTES + json.dumps({"messages": USER}).encode())
        assert large.status_code == 200


@pytest.mark.parametrize(("ending", "status"), [("too large", 413), ("dense", 413), ("broken", 400), ("a fault", 500)])
async def test_what_was_held_is_given_back_whatever_becomes_of_the_request(ending: str, status: int) -> None:
    app = create_app(deployment(engine(), max_body_size=LARGEST))

    async def content() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b" " * FREE_BYTES
        if ending == "a fault":
            raise ConnectionError
        yield {"too large": b" " * LARGEST, "broken": b"{", "dense": b"," * (MOST_ITEMS + 1)}[ending]

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://toy") as http:
        assert (await http.post(CHAT, content=content())).status_code == status
    assert app.state.body_room._held.total() == 0


async def test_a_body_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paraserve.api.body.BODY_SECONDS", -1.0)
    async with client(deployment(engine())) as http:
        late = await http.post(CHAT, content=b" " * 2 * FREE_BYTES)
        assert (late.status_code, late.json()["error"]["code"]) == (408, "request_timeout")
        small = await http.post(CHAT, json={"messages": USER})
        assert small.status_code == 200, "it is held by the bound between two parts"


@pytest.mark.parametrize("unit", ["[],", "{},", '"k":1,', "1,", '{"a":[{"b":1}]},'])
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_body_of_more_objects_than_any_context_has_room_for_is_refused(unit: str, encoding: str) -> None:
    body = b'{"messages": [], "x": [' + unit.encode() * (MOST_ITEMS + 1)
    async with client(deployment(engine())) as http:
        response = await http.post(CHAT, content=PACK[encoding](body), headers={"content-encoding": encoding})
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")


@pytest.mark.parametrize("text", ["a word, and another one, of some length. ", "if (x[i]) { y = {}; }\n    ", "{}[]"])
def test_as_much_text_as_a_context_holds_is_not_refused(text: str) -> None:
    """A million tokens of prose or code: a token is four characters there, and one where every character is a mark."""
    contents = Contents()
    size = 400_000 if text == "{}[]" else 4_000_000
    contents.add((text * (size // len(text) + 1))[:size].encode())


def test_the_bounds_have_room_for_a_context_of_a_million_ids() -> None:
    contents = Contents()
    contents.add(b"1," * 1_000_000)
    assert MOST_OBJECTS < MOST_ITEMS
