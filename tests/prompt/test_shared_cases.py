"""The cases that users of this kind of server met, on the real templates that each of them names.

They are no part of the project: they lie beside the shared assets (`PARASERVE_SHARED_CASES`, by default
``../shared/cases-2``), and what needs them skips where they are absent. The laws behind them stand on their own in
`test_tool_results.py`, `test_turns.py` and `test_tool_schemas.py`.
"""

import json
import os
from pathlib import Path

import pytest

from paraserve.protocol.chat import check_chat
from tests.prompt.real_templates import real_prompt
from tests.prompt.requests import asked

CASES = Path(os.environ.get("PARASERVE_SHARED_CASES", Path(__file__).parents[3] / "shared" / "cases-2"))


@pytest.fixture
def case(request):
    path = CASES / f"{request.param}.json"
    if not path.is_file():
        pytest.skip(f"this case is not here ({path}); set PARASERVE_SHARED_CASES")
    return json.loads(path.read_text())


@pytest.fixture
def prepared(shared_assets):
    """What the model of a template reads of a body that came over the wire."""

    def prepare(template, messages, tools=None):
        prompt = real_prompt(shared_assets / "templates" / f"{template.removesuffix('.jinja')}.jinja")
        return prompt.prepare(check_chat(asked(messages, tools)))

    return prepare


@pytest.mark.parametrize("case", ["f01-media-of-sorted-results"], indirect=True)
def test_media_follow_sorted_results(case, prepared):
    for template in case["templates"]:
        prompt = prepared(template, case["messages"], case["tools"])
        assert [item.url for item in prompt.media] == case["expected"]["media"], template
        assert prompt.text.index("PICTURE_A") < prompt.text.index("PICTURE_B"), template


@pytest.mark.parametrize("case", ["f02-results-out-of-call-order"], indirect=True)
def test_results_stand_in_the_order_of_their_calls(case, prepared):
    *before, second, first = case["messages"]
    for template in case["templates_that_fail"] + case["templates_that_sort_already"] + ["gemma4"]:
        prompt = prepared(template, case["messages"], case["tools"])
        assert prompt.text == prepared(template, [*before, first, second], case["tools"]).text, template
        assert "results_in_call_order" in prompt.normalizations, template
    for template in case["templates_that_show_ids"]:
        assert "results_in_call_order" not in prepared(template, case["messages"], case["tools"]).normalizations


@pytest.mark.parametrize("case", ["f03-gemma4-result-not-next-to-its-call"], indirect=True)
def test_results_stand_behind_their_calls(case, prepared):
    for each in case["cases"]:
        for template in case["templates"]:
            text = prepared(template, each["messages"], case["tools"]).text
            assert text.index("RESULT_OF_AAA") < text.index("RESULT_OF_BBB"), each["messages"]
            between = next(m for m in each["messages"][2:] if m["role"] in ("user", "assistant", "developer"))
            if between["role"] != "developer":  # which the template shows at the head
                assert text.index("RESULT_OF_BBB") < text.index(between["content"]), each["messages"]


@pytest.mark.parametrize("case", ["f16-mistral-thinking-chunks"], indirect=True)
def test_thinking_chunks_are_thoughts(case, prepared):
    for template in case["templates"]:
        assert case["expected"]["prompt_has"] in prepared(template, case["messages"]).text


@pytest.mark.parametrize("case", ["f17-ref-in-tool-schema"], indirect=True)
def test_what_a_reference_names_is_in_the_prompt(case, prepared):
    for template in case["templates"]:
        text = prepared(template, case["messages"], case["tools"]).text
        assert all(word in text for word in ("kind", "week", "month")), template


@pytest.mark.parametrize("case", ["f18-tool-schema-without-properties"], indirect=True)
def test_a_schema_that_leaves_out_what_a_template_reads_is_served(case, prepared):
    for each in case["cases"]:
        tool = {"type": "function", "function": {"name": "aaa", "description": "d", "parameters": each["parameters"]}}
        for template in each["template"].split(", "):
            assert "aaa" in prepared(template, [{"role": "user", "content": "hi"}], [tool]).text, each


@pytest.mark.parametrize("case", ["f19-ministral-empty-assistant"], indirect=True)
@pytest.mark.parametrize("nothing", ["", None, []])
def test_a_turn_in_which_nothing_is_said_does_not_end_the_conversation(case, prepared, nothing):
    user, _, last = case["messages"]
    for template in case["templates"]:
        text = prepared(template, [user, {"role": "assistant", "content": nothing}, last]).text
        assert text.rindex(user["content"]) < text.rindex(last["content"]), template
