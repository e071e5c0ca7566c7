"""The awkward conversations of the render matrix, and what must be left of each in a prompt."""

import json
import re
from collections.abc import Callable
from typing import Any

ARGUMENTS = {"city": "北京 ", "days": [1, 2], "exact": True, "note": "line\nnext <b>"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "a tool",
            "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "where"}}},
        },
    }
    for name in ("get_weather", "search_docs")
]
LEAKS = (
    re.compile(r"'type': ?'text'|\"type\": ?\"text\""),
    re.compile(r'\\"city\\"|\{\'city\''),
    re.compile(r"(?<![A-Za-z\"_])None(?![A-Za-z\"])"),
    re.compile(r"cache_control|Undefined"),
)


def parts(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


def call(name: str, arguments: Any, call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversation(
    *,
    system: Any = "SYS_SENT",
    role: str = "system",
    user: Any = "USER_SENT",
    content: Any = "CONTENT_SENT",
    arguments: Any = ARGUMENTS,
    result: Any = "RESULT_ONE RESULT_TWO",
    late: bool = False,
    parallel: bool = False,
    **fields: Any,
) -> list[dict[str, Any]]:
    calls = [call("get_weather", arguments, "callid001")]
    results = [{"role": "tool", "tool_call_id": "callid001", "content": result}]
    if parallel:
        calls.append(call("search_docs", {"city": "SECOND_CALL"}, "callid002"))
        results.append({"role": "tool", "tool_call_id": "callid002", "content": "SECOND_RESULT"})
    assistant = {"role": "assistant", "content": content, "tool_calls": calls, **fields}
    if content == "missing":
        del assistant["content"]
    return [
        {"role": role, "content": system},
        {"role": "user", "content": user},
        assistant,
        *results,
        {"role": "assistant", "content": "FINAL_SENT"},
        *([{"role": "system", "content": "LATE_SYS"}] if late else []),
        {"role": "user", "content": "LAST_SENT"},
    ]


ALWAYS = ("SYS_SENT", "USER_SENT", "get_weather", "RESULT_ONE", "RESULT_TWO", "FINAL_SENT", "LAST_SENT")

CASES: dict[str, tuple[Callable[[], list[dict[str, Any]]], tuple[str, ...]]] = {
    "args_dict": (conversation, ("CONTENT_SENT",)),
    "args_str": (lambda: conversation(arguments=json.dumps(ARGUMENTS, ensure_ascii=False)), ("CONTENT_SENT",)),
    "tool_list": (lambda: conversation(result=parts("RESULT_ONE", "RESULT_TWO")), ("CONTENT_SENT",)),
    "content_null": (lambda: conversation(content=None), ()),
    "content_missing": (lambda: conversation(content="missing"), ()),
    "content_empty": (lambda: conversation(content=""), ()),
    "content_list": (lambda: conversation(content=parts("CONTENT_SENT")), ("CONTENT_SENT",)),
    "developer": (lambda: conversation(role="developer"), ("CONTENT_SENT",)),
    "user_list": (lambda: conversation(user=parts("USER_SENT")), ("CONTENT_SENT",)),
    "sys_list": (lambda: conversation(system=parts("SYS_SENT")), ("CONTENT_SENT",)),
    "tool_null": (lambda: conversation(result=None), ("CONTENT_SENT", "-RESULT")),
    "second_system": (lambda: conversation(late=True), ("CONTENT_SENT", "LATE_SYS")),
    "parallel": (lambda: conversation(parallel=True), ("CONTENT_SENT", "SECOND_CALL", "SECOND_RESULT")),
}


def judge(text: str, wanted: tuple[str, ...], *, drops_text_beside_calls: bool) -> str:
    """``ok``, or what was lost or leaked.

    A template that has no place for text beside tool calls drops it in the model's own reference, too: that is the
    template's rule and no loss of ours.
    """
    expected = [word for word in ALWAYS if not ("-RESULT" in wanted and word.startswith("RESULT"))]
    expected += [word for word in wanted if not word.startswith("-")]
    if drops_text_beside_calls:
        expected = [word for word in expected if word != "CONTENT_SENT"]
    lost = [word for word in expected if word not in text]
    leaked = [pattern.pattern for pattern in LEAKS if pattern.search(text)]
    if leaked:
        return f"LEAK {leaked[0]}"
    return f"LOST {','.join(lost)}" if lost else "ok"
