"""The fake vLLM server by the rules of the real one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from paraserve.engines.http.client import EngineHTTP
from tests.engines.vllm_rules import Served, VLLMRules
from tests.fakes.serving import serving
from tests.fakes.vllm_fake import FakeVLLM


class TestFakeVLLM(VLLMRules):
    @pytest.fixture
    async def server(self) -> AsyncIterator[Served]:
        fake = FakeVLLM()
        async with serving(fake) as url:
            http = EngineHTTP(url)
            await http.open()
            yield Served(http, fake.limits)
            await http.close()
