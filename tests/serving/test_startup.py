"""From settings to an engine and a format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paraserve.deploy import choose_format
from paraserve.engines.balancer import BalancedEngine
from paraserve.engines.base import Engine, EngineStartError
from paraserve.engines.build import build_engine, engine_of_ours
from paraserve.engines.child import EngineAddress
from paraserve.engines.http.remote import ModelFacts
from paraserve.engines.llama_cpp.engine import LlamaCppEngine
from paraserve.engines.sglang.engine import SGLangEngine
from paraserve.engines.vllm.engine import VLLMEngine
from paraserve.settings import ServerSettings
from paraserve.start_error import StartError
from paraserve.tokenizers.checkpoint import Checkpoint
from tests.toy import ByteTokenizer

URL = ("http://127.0.0.1:1",)
OURS = EngineAddress("http://127.0.0.1:1")
GLM = "{{ tools }}<tool_call>{{ name }}\n<arg_key>{{ key }}</arg_key>\n<arg_value>{{ value }}</arg_value></think>"


def checkpoint(template: str = "{{ messages }}") -> Checkpoint:
    return Checkpoint(path=Path("models/toy"), tokenizer=ByteTokenizer(), templates={"default": template})


def built(ours: EngineAddress | None = None, **settings: Any) -> Engine:
    chosen = ServerSettings(model_path="models/toy", **settings)
    return build_engine(chosen, ModelFacts(256), ByteTokenizer(), lambda phase: None, ours)


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"engine": "llama.cpp", "ours": OURS}, LlamaCppEngine),
        ({"engine": "llama.cpp", "engine_url": URL}, LlamaCppEngine),
        ({"engine": "sglang", "engine_url": URL}, SGLangEngine),
        ({"engine": "vllm", "engine_url": URL}, VLLMEngine),
        ({"engine": "sglang", "engine_url": URL * 2}, BalancedEngine),
        ({"engine": "vllm", "engine_url": URL * 2}, BalancedEngine),
        ({"engine": "sglang", "ours": OURS}, SGLangEngine),
        ({"engine": "vllm", "ours": OURS}, VLLMEngine),
    ],
)
def test_settings_choose_the_engine(settings: dict[str, Any], kind: type) -> None:
    assert type(built(**settings)) is kind


def test_a_flag_that_is_ours_to_set_is_refused_for_an_engine_that_we_start() -> None:
    with pytest.raises(EngineStartError, match="--port"):
        engine_of_ours(ServerSettings(model_path="models/toy", engine="sglang"), ["--port", "1"])


def test_several_urls_of_llama_cpp_are_refused() -> None:
    with pytest.raises(StartError, match="one --engine-url"):
        built(engine="llama.cpp", engine_url=URL * 2)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "glm45"),
        ({"tool_call_parser": "hermes"}, "glm45+hermes"),
        ({"tool_call_parser": "none"}, "glm45+plain"),
        ({"reasoning_parser": "none", "tool_call_parser": "none"}, "plain"),
        ({"reasoning_parser": "deepseek-r1", "tool_call_parser": "none"}, "deepseek_r1+plain"),
    ],
)
def test_the_format_is_the_templates_unless_the_operator_says_otherwise(settings: dict[str, str], name: str) -> None:
    assert choose_format(ServerSettings(**settings), checkpoint(GLM)).name == name


def test_calls_in_text_are_read_where_the_operator_asks_for_it() -> None:
    llama = {"tool_call_parser": "llama3_json"}
    quiet, asked = (choose_format(ServerSettings(**llama, calls_in_text=on), checkpoint(GLM)) for on in (False, True))
    assert {calls.announced for calls in quiet.calls} == {""}
    assert "```" in {calls.announced for calls in asked.calls}


def test_a_template_with_tools_of_an_unknown_form_is_told_at_start(caplog: pytest.LogCaptureFixture) -> None:
    assert choose_format(ServerSettings(), checkpoint("{{ messages }}{{ tools }}")).name == "plain"
    assert "--tool-call-parser" in caplog.text
    caplog.clear()
    assert choose_format(ServerSettings(), checkpoint("{{ messages }}")).name == "plain"
    assert caplog.text == ""


def test_an_unknown_format_name_lists_the_choices() -> None:
    with pytest.raises(StartError, match="hermes"):
        choose_format(ServerSettings(tool_call_parser="nonsense"), checkpoint())


@pytest.mark.parametrize(
    ("settings", "template", "name"),
    [
        ({"tool_template": "hermes"}, "{{ messages }}", "plain+hermes"),
        ({"tool_template": "hermes", "tool_call_parser": "none"}, "{{ messages }}", "plain"),
        ({"tool_template": "hermes"}, GLM, "glm45"),
        ({"tool_template": "off"}, "{{ messages }}", "plain"),
        ({}, "{{ messages }}", "plain"),
    ],
)
def test_tools_are_said_in_the_messages_where_the_operator_wants_it_and_the_template_knows_none(
    settings: dict[str, Any], template: str, name: str
) -> None:
    assert choose_format(ServerSettings(**settings), checkpoint(template)).name == name


def test_the_default_model_has_tools_unless_they_are_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    made = checkpoint("{{ messages }}")
    monkeypatch.setattr("paraserve.deploy.default_model_path", lambda: made.path)
    assert choose_format(ServerSettings(), made).name == "plain+hermes"
    assert choose_format(ServerSettings(tool_template="off"), made).name == "plain"
    assert choose_format(ServerSettings(model_path=str(made.path)), made).name == "plain"
