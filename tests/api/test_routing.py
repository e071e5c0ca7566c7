"""Which endpoint a path and a method lead to."""

from __future__ import annotations

import pytest

from paraserve.api.endpoints import ENDPOINTS
from paraserve.api.routing import NOWHERE, Router
from tests.toy import client, deployment, engine


@pytest.mark.parametrize("root_path", ["", "/llm"])
def test_every_endpoint_is_found_by_its_own_path_and_method(root_path: str) -> None:
    router = Router(ENDPOINTS, root_path)
    for endpoint in ENDPOINTS:
        asked = endpoint.path.replace("{model:path}", "a/b").replace("{", "").replace("}", "")
        for path in {asked, root_path + asked}:
            route, parameters = router.find({"path": path, "method": endpoint.method})
            assert route.path == endpoint.path
            assert route.handlers[endpoint.method] is endpoint.handler
            assert parameters.keys() == endpoint.parameters.keys()
            assert ("HEAD" in route.handlers) == ("GET" in route.handlers)
    assert router.find({"path": "/v1/nothing", "method": "GET"})[0] is NOWHERE
    assert router.find({"path": "/v1/chat/completions/", "method": "POST"})[0] is NOWHERE


async def test_a_path_that_two_rows_fit_is_answered_by_the_one_that_takes_the_method() -> None:
    async with client(deployment(engine())) as http:
        answer = await http.get("/v1/responses/input_tokens")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "response_not_found")
        assert (await http.post("/v1/responses/input_tokens", json={"input": "x"})).status_code == 200


async def test_a_wrong_method_is_told_all_that_the_path_takes() -> None:
    async with client(deployment(engine())) as http:
        answer = await http.put("/v1/responses/resp_1")
        assert answer.status_code == 405
        assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "DELETE"}


async def test_head_is_answered_as_get_is() -> None:
    async with client(deployment(engine())) as http:
        assert (await http.head("/health")).status_code == 200
        assert (await http.head("/v1/models/toy")).status_code == 200
        assert (await http.head("/v1/chat/completions")).status_code == 405
