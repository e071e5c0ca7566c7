"""Response templates in our own words, one for each thing that a declaration can say and a description cannot.

Each stands with one reply that has all its fields: reasoning ``hm``, content ``Hi there``, and a call of ``save_note``.
"""

from typing import Any

NAMED = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}

HARMONY = {
    "version": 1,
    "defaults": {"role": "assistant"},
    "start_anchor": "<|start|>assistant",
    "fields": {
        "thinking": {"open": "<|channel|>analysis<|message|>", "close": "<|end|>", "repeats": True},
        "tool_calls": {
            "open_pattern": r"<\|channel\|>commentary to=functions\.(?P<name>[\w.-]+).*?<\|message\|>",
            "close": ["<|call|>", "<|end|>"],
            "repeats": True,
            "content": "json",
            "transform": NAMED,
        },
        "content": {"open": "<|channel|>final<|message|>", "close": ["<|return|>", "<|end|>"]},
    },
}
LINES = {
    "start_anchor": "<bot>",
    "fields": {
        "reasoning": {"open": ["<think>", "<reason>"], "close": ["</think>", "</reason>"]},
        "tool_calls": {
            "open_pattern": r"<call\s+(?P<name>[^\s>]+)>\n?",
            "close": "</call>",
            "content": "kv-lines",
            "content_args": {"kv_sep": "=", "value_parser": {"name": "json", "args": {"allow_non_json": True}}},
            "transform": NAMED,
            "repeats": True,
        },
        "content": {},
    },
}
TAGS = {
    "start_anchor_pattern": r"<bot(?: \w+)?>",
    "fields": {
        "thinking": {"open": "<think>", "close_pattern": r"</think>|(?=<call)"},
        "tool_calls": {
            "open_pattern": r"<call name=\"(?P<name>[^\"]+)\">",
            "close_pattern": r"</call(?:>|\s+id=(?P<call_id>\d+)>)",
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<(?:arg|a) (?P<key>[^>]+)>(?P<value>.*?)</(?:arg|a)>",
                "merge_duplicates": True,
            },
            "transform": NAMED,
            "repeats": True,
        },
        "content": {"close": "<eot>"},
    },
}
LISTS = {
    "start_anchor": "<|CHATBOT|>",
    "fields": {
        "thinking": {"open": "<|START_THINKING|>", "close": "<|END_THINKING|>"},
        "tool_calls": {
            "open": ["<|START_ACTION|>", "<|START_TOOLS|>"],
            "close": "<|END_ACTION|>",
            "content": "json",
            "transform_each": True,
            "transform": {"function": {"name": "{tool_name}", "arguments": "{parameters}"}},
        },
        "content": {"open_pattern": r"<\|START_(?:TEXT|RESPONSE)\|>", "close_pattern": r"<\|END_(?:TEXT|RESPONSE)\|>"},
    },
}
DIALECT = {
    "start_anchor": "<model>",
    "fields": {
        "thinking": {"open_pattern": r"<think(?:ing)?>", "close_pattern": "</think(?:ing)?>"},
        "tool_calls": {
            "open_pattern": r"<do>\s*(?P<name>[\w.-]+)\s*(?=\{)",
            "close": "</do>",
            "content": "json",
            "content_args": {"unquoted_keys": True, "string_delims": [["<q>", "</q>"], ["«", "»"]]},
            "transform": NAMED,
            "repeats": True,
        },
        "content": {"content_args": {"strip": False}},
    },
}
PYTHON = {
    "start_anchor": "<model>",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>", "repeats": True, "join": "\n--\n"},
        "tool_calls": {"open": ["<code>", "```tools"], "close": ["</code>", "```"], "content": "python-call-list"},
        "content": {},
    },
}
WHOLE = {
    "start_anchor": "<model>",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open_pattern": r"<fn>(?P<name>[\w.-]+)(?:<id>(?P<id>\w+))?<args>",
            "content": "text",
            "transform": {"id": "x", "type": "function", "function": {"name": "{name}", "arguments": "{content}"}},
        },
        "content": {},
    },
}

DECLARED: dict[str, tuple[dict[str, Any], str]] = {
    "harmony": (
        HARMONY,
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi there<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.save_note <|constrain|>json<|message|>"
        '{"title": "x", "stars": 3}<|call|>',
    ),
    "lines": (LINES, "<reason>\nhm\n</reason>\n\nHi there\n<call save_note>\ntitle = x\nstars = 3\n</call>"),
    "tags": (
        TAGS,
        '<think>hm</think>Hi there<call name="save_note"><arg title>x</arg><a stars>3</a></call id=7>',
    ),
    "lists": (
        LISTS,
        "<|START_THINKING|>hm<|END_THINKING|><|START_RESPONSE|>Hi there<|END_RESPONSE|><|START_TOOLS|>"
        '[{"tool_call_id": "0", "tool_name": "save_note", "parameters": {"title": "x", "stars": 3}}]<|END_ACTION|>',
    ),
    "dialect": (DIALECT, "<thinking>hm</thinking>Hi there<do>save_note {title: <q>x</q>, stars: 3}</do>"),
    "python": (PYTHON, "<think>hm</think>Hi there\n```tools\n[save_note(title='x', stars=3)]\n```"),
    "whole": (WHOLE, '<think>hm</think>Hi there\n<fn>save_note<id>a1<args>{"title": "x", "stars": 3}'),
}
