"""What the tests of grammars share: a small vocabulary, walking a grammar at random, and the tools.

The vocabulary is every byte, an end token, pieces that random text needs in order to come to an end, and (where asked)
the format's markers as tokens of their own, as real vocabularies have them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from paraserve.formats.spec import Format
from paraserve.formats.types import ToolSpec

END = 256
PIECES = (
    '"',
    '": ',
    '", "',
    "}",
    "]",
    "}}",
    "</",
    ">\n",
    "\n",
    '{"',
    "true",
    "null",
    "12",
    ' "',
    "é",
    "北",
    "\\n",
    '\\"',
)
_MARKER = re.compile(r"</?[^\s=<>]+>|\[/?[A-Z_]+\]|\]<\]minimax\[>\[|｜DSML｜")

NODE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    "required": ["v"],
    "additionalProperties": False,
}
WEATHER = ToolSpec(
    "get_weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "opts": {
                "type": "object",
                "properties": {
                    "units": {"enum": ["metric", "imperial"]},
                    "days": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
                    "tag": {"type": "string"},
                },
                "required": ["units"],
                "additionalProperties": False,
            },
            "note": {"type": "string", "minLength": 2, "maxLength": 30},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
)
SEARCH = ToolSpec(
    "search_docs",
    {
        "type": "object",
        "properties": {
            "query": {"type": "string", "pattern": '^[a-z &<"/]{1,12}$'},
            "limit": {"type": "integer", "minimum": 1, "maximum": 10},
            "exact": {"type": "boolean"},
            "ratio": {"type": ["number", "null"], "exclusiveMinimum": -1.5, "maximum": 20.25},
            "kind": {"const": "x y"},
            "mode": {"enum": ["a", 1, None, True]},
            "when": {"type": "string", "format": "date"},
        },
        "required": ["query", "limit"],
        "additionalProperties": False,
    },
)
TREE = ToolSpec(
    "tree",
    {
        "$defs": {"node": NODE, "tag": {"enum": ["red", "blue"]}},
        "type": "object",
        "properties": {
            "root": {"$ref": "#/$defs/node"},
            "tag": {"$ref": "#/$defs/tag"},
            "either": {"anyOf": [{"type": "string", "maxLength": 4}, {"type": "integer"}]},
            "number_or_list": {
                "anyOf": [
                    {"type": "integer"},
                    {"type": "array", "items": {"type": "string", "maxLength": 4}, "minItems": 1, "maxItems": 2},
                ]
            },
            "maybe": {"anyOf": [{"type": "string", "pattern": "^[A-Z]+$"}, {"type": "null"}]},
            "choice": {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {"k": {"const": "a"}, "n": {"type": "integer"}},
                        "required": ["k"],
                    },
                    {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]},
                ]
            },
            "both": {
                "allOf": [
                    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                    {"properties": {"b": {"type": "boolean"}}, "required": ["b"]},
                ]
            },
        },
        "required": ["root"],
    },
)
PING = ToolSpec("ping")
GET = ToolSpec("get", {"type": "object", "properties": {"any": {}}})
TOOLS = (WEATHER, SEARCH, TREE, PING, GET)
OPEN_MAPS = (
    ToolSpec(
        "open_map",
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "additionalProperties": {"type": "boolean"},
        },
    ),
    ToolSpec("free", {"type": "object"}),
    ToolSpec(
        "count",
        {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "propertyNames": {"pattern": "^[a-z]{2,4}$"},
            "minProperties": 1,
            "maxProperties": 3,
        },
    ),
)


def arguments_schema(tool: ToolSpec) -> dict[str, object]:
    return dict(tool.parameters) or {"type": "object", "additionalProperties": False}


class Vocabulary:
    """Bytes, pieces and, with ``marker_tokens``, the markers of a format as single tokens."""

    def __init__(self, format: Format, *, marker_tokens: bool) -> None:
        texts = {found for marker in format.marker_texts for found in _MARKER.findall(marker)}
        self.markers: dict[str, int] = {}
        self.tokens = [bytes([number]) for number in range(256)] + [b"<END>"] + [piece.encode() for piece in PIECES]
        for text in sorted(texts):
            if marker_tokens:
                self.markers[text] = len(self.tokens)
            self.tokens.append(text.encode())
        self.weights = [self._weight(number, token) for number, token in enumerate(self.tokens)]
        self.eos_token_id, self.bos_token_id, self.special_token_ids = END, None, [END]
        self.llg = LLTokenizer(TokenizerWrapper(self), n_vocab=len(self.tokens))

    def __call__(self, text: bytes) -> list[int]:
        return list(text)

    @staticmethod
    def _weight(number: int, token: bytes) -> float:
        if number == END:
            return 30
        if number > END:
            return 3 if number <= END + len(PIECES) else 15
        if chr(number) in '"}]\n':
            return 8
        return 0.03 if number >= 128 else 0.1 if number < 32 else 1

    def encode(self, text: str) -> list[int]:
        """Markers as their tokens, everything else as bytes."""
        if not self.markers:
            return list(text.encode())
        ids: list[int] = []
        for part in re.split("(" + "|".join(map(re.escape, sorted(self.markers, key=len, reverse=True))) + ")", text):
            ids += [self.markers[part]] if part in self.markers else part.encode()
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.tokens[number] for number in ids).decode()

    def matcher(self, grammar: str) -> LLMatcher:
        matcher = LLMatcher(self.llg, grammar, log_level=0)
        assert not matcher.is_error(), f"{matcher.get_error()}\n{grammar}"
        return matcher

    def accepts(self, grammar: str, text: str) -> bool:
        """Whether the grammar takes the whole text and may end there."""
        matcher, ids = self.matcher(grammar), self.encode(text)
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

    def sample(self, grammar: str, chooser: random.Random, *, most: int = 1200) -> str | None:
        """A random text of the grammar; None where it did not come to an end in time."""
        matcher, ids = self.matcher(grammar), list[int]()
        while len(ids) < most:
            mask = matcher.compute_bitmask()
            assert not matcher.is_error(), matcher.get_error()
            allowed = [number for number in range(len(self.tokens)) if mask[number >> 3] >> (number & 7) & 1]
            if not allowed:
                assert matcher.is_accepting(), f"a dead end after {self.decode(ids)!r}"
                return self.decode(ids)
            # The longer a text is, the more what ends things is preferred.
            hurry = 1 + (len(ids) / 60) ** 2
            weights = [w * hurry if (w := self.weights[number]) > 5 else w for number in allowed]
            number = chooser.choices(allowed, weights)[0]
            if number == END:
                return self.decode(ids)
            assert matcher.consume_token(number)
            ids.append(number)
        return None


@cache
def vocabulary(format: Format, marker_tokens: bool) -> Vocabulary:
    return Vocabulary(format, marker_tokens=marker_tokens)
