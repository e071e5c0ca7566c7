"""Names of generations in the engine."""

from __future__ import annotations

from tests.api.wire import post
from tests.toy import client, deployment, engine


async def test_no_name_of_a_generation_begins_with_another_one() -> None:
    scripted = engine()
    async with client(deployment(scripted)) as http:
        assert (await post(http, n=12, max_tokens=1)).status_code == 200
        assert (await post(http, n=12, max_tokens=1, stream=True)).status_code == 200
    names = [request.request_id for request in scripted.requests]
    assert len(names) == 24
    assert not [(a, b) for i, a in enumerate(names) for j, b in enumerate(names) if i != j and b.startswith(a)]
