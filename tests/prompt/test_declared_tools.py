"""What is kept of tools that come again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paraserve.prompt import tool_declarations
from paraserve.prompt.capabilities import TemplateCapabilities
from paraserve.prompt.tool_declarations import KEPT_TOOLS, LARGEST_KEPT, DeclaredTools, declare_tools

TAKES = TemplateCapabilities(bare_tools=False, references="inlined", type_lists=False)

values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
schemas = st.dictionaries(st.sampled_from(["type", "title", "enum", "default", "x"]), values, max_size=3)
tools = st.lists(
    st.builds(
        lambda name, about, schema: {
            "type": "function",
            "function": {"name": name, "description": about, "parameters": schema},
        },
        st.sampled_from("ab"),
        st.none() | st.just("text"),
        st.none() | schemas,
    ),
    max_size=2,
)


@given(st.lists(tools, max_size=8))
def test_what_is_kept_is_what_would_be_made(asked: list[Any]) -> None:
    kept = DeclaredTools(TAKES)
    for each in [*asked, *asked]:
        notes: dict[str, None] = {}
        made: dict[str, None] = {}
        assert repr(kept.of(each, notes)) == repr(declare_tools(each, TAKES, made))
        assert notes == made


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "", "parameters": {"properties": {}}}}


def test_tools_that_come_again_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def make(tools: Any, *rest: Any) -> Any:
        made.append(tools)
        return declare_tools(tools, *rest)

    monkeypatch.setattr(tool_declarations, "declare_tools", make)
    kept = DeclaredTools(TAKES)
    for name in ("first", "first", "second", "first"):
        kept.of([tool(name)], {})
    assert len(made) == 2
    for number in range(KEPT_TOOLS):
        kept.of([tool(f"other{number}")], {})
    kept.of([tool("first")], {})
    assert len(made) == 2 + KEPT_TOOLS + 1, "the oldest was given up"
    for _ in range(2):
        kept.of([tool("x" * LARGEST_KEPT)], {})
    assert len(made) == 2 + KEPT_TOOLS + 1 + 2, "what is large is not kept"
    huge = [{"type": "function", "function": {"name": "f", "description": "", "parameters": {"default": 2**70}}}]
    assert kept.of(huge, {}) == declare_tools(huge, TAKES, {})
