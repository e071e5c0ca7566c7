"""What the engine must obey: ``response_format``, ``regex``, ``ebnf`` and the tool choice as one `Constraint`.

The form follows the engine's capabilities, never its name. Nothing that a client asked to be enforced is dropped: what
the engine or the grammar cannot express is a 400 that names the field.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec

from paraserve.engines.base import Constraint, ConstraintKind, EngineInfo
from paraserve.formats.spec import Format
from paraserve.formats.types import ReplyStart, ToolSpec
from paraserve.generation.plan import may_reason
from paraserve.grammar import (
    GrammarError,
    GrammarTarget,
    Writing,
    argument_pattern,
    response_format_constraint,
    tool_call_constraint,
)
from paraserve.protocol.error_codes import ErrorCode
from paraserve.protocol.errors import RequestError, field_error
from paraserve.protocol.sampling import ResponseFormat

CACHED_GRAMMARS = 128
"""Agents send the same tools turn after turn: the grammars of this many different requests are kept."""

_TARGETS: tuple[GrammarTarget, ...] = ("structural_tag", "lark", "ebnf")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a request asks to be enforced.

    Args:
        tools: those that the model may call.
        choice: ``auto``, ``required``, ``none`` or the name of one of the tools.
        parallel: whether more than one call is allowed.
        start: where the prompt leaves the model.
    """

    response_format: ResponseFormat | None = None
    regex: str | None = None
    ebnf: str | None = None
    tools: Sequence[ToolSpec] = ()
    choice: str = "none"
    parallel: bool = True
    start: ReplyStart = ReplyStart.HEADER

    @property
    def forces_tools(self) -> bool:
        return self.choice not in ("auto", "none")

    @property
    def constrains_calls(self) -> bool:
        """Whether a call must be made, or must be as its schema says."""
        return self.forces_tools or (self.choice == "auto" and any(tool.strict for tool in self.tools))

    @property
    def param(self) -> str:
        """The field to blame when an engine refuses the grammar."""
        if self.forces_tools:
            return "tool_choice"
        return "response_format" if self.json_schema[0] else "tools"

    @property
    def json_schema(self) -> tuple[bool, object]:
        """Whether content must be JSON, and of which schema (None: any object)."""
        chosen = self.response_format
        if chosen is None or chosen.type == "text":
            return False, None
        return True, chosen.schema


class AskedGrammar(msgspec.Struct, frozen=True):
    """A grammar that is to be written, or that was: its digest tells."""

    wanted: Wanted
    target: GrammarTarget
    digest: bytes


InThread = Callable[[Callable[[], str | None]], Awaitable[str | None]]


class ConstraintBuilder:
    """Makes constraints for one model on one engine.

    Args:
        added_tokens: text to id of the tokenizer's added tokens, for grammars that match markers by id.
        lenient: leave out the schema keywords that no grammar can express, instead of refusing the request.
    """

    def __init__(
        self, format: Format, info: EngineInfo, added_tokens: Mapping[str, int], *, lenient: bool = False
    ) -> None:
        self._format = format
        self._info = info
        self._tokens = added_tokens
        self._lenient = lenient
        self._cache: OrderedDict[bytes, str | None] = OrderedDict()

    def asked(self, wanted: Wanted) -> Constraint | AskedGrammar | None:
        """The constraint, or the grammar of which `written` makes one; None where nothing is to be enforced. As much
        work as the request is large.

        Raises:
            RequestError: 400, ``param`` names the field that cannot be enforced.
        """
        if wanted.regex is not None:
            return self._of_the_client("regex", wanted.regex, wanted)
        if wanted.ebnf is not None:
            return self._of_the_client("ebnf", wanted.ebnf, wanted)
        is_json, _ = wanted.json_schema
        if not is_json and not wanted.constrains_calls:
            return None
        target = next((t for t in _TARGETS if t in self._info.constraints), None)
        if target is None:
            return self._without_grammar(wanted)
        return AskedGrammar(wanted, target, _digest(wanted, target))

    async def written(self, asked: AskedGrammar, in_thread: InThread) -> Constraint | None:
        """The constraint of a grammar, which is written unless it was before. Writing ends when this is cancelled.

        Args:
            in_thread: where it is written.

        Raises:
            RequestError: 400, it cannot be enforced, or takes too long to write.
        """
        if asked.digest not in self._cache:
            writing = Writing()
            try:
                value = await in_thread(partial(writing.run, partial(self._write, asked.wanted, asked.target)))
            except GrammarError as error:
                path = error.path or asked.wanted.param
                param = "response_format" if path.startswith("response_format") else path
                raise RequestError(str(error), param=param, code=ErrorCode.UNSUPPORTED_SCHEMA) from None
            finally:
                writing.stop()
            self._cache[asked.digest] = value
            if len(self._cache) > CACHED_GRAMMARS:
                self._cache.popitem(last=False)
        self._cache.move_to_end(asked.digest)
        value = self._cache[asked.digest]
        if value is None:
            return None
        covers = may_reason(self._format, asked.wanted.start)
        return Constraint(asked.target, value, covers_reasoning=covers, param=asked.wanted.param)

    def argument_pattern(self, syntax: str | None, definition: str | None) -> str | None:
        """What says in a tool's schema that a text follows a grammar of the client's; None where the engine takes no
        grammar, or a schema cannot say it."""
        obeys = any(target in self._info.constraints for target in _TARGETS)
        return argument_pattern(syntax, definition) if obeys else None

    def _of_the_client(self, kind: Literal["regex", "ebnf"], value: str, wanted: Wanted) -> Constraint:
        """An expression for the whole answer: nothing else can be enforced beside it."""
        if wanted.constrains_calls:
            other = "tool_choice" if wanted.forces_tools else "strict tools"
            raise field_error(kind, f"cannot be combined with {other}")
        return self._as_is(kind, value, kind, wanted)

    def _as_is(self, kind: ConstraintKind, value: str, param: str, wanted: Wanted) -> Constraint:
        """A constraint in the engine's own kind. Nothing can be put in front of it: the reasoning must be over, or the
        engine must wait for its end. At a bare header nobody knows whether there will be any: an engine that waited for
        the end of reasoning that never begins would enforce nothing."""
        if kind not in self._info.constraints:
            raise _unsupported(param)
        waits = self._info.defers_constraints and wanted.start is ReplyStart.REASONING
        if may_reason(self._format, wanted.start) and not waits:
            raise field_error(
                param,
                "this engine would apply it to the model's reasoning; turn the reasoning off",
                ErrorCode.UNSUPPORTED_PARAMETER,
            )
        return Constraint(kind, value, param=param)

    def _without_grammar(self, wanted: Wanted) -> Constraint | None:
        """An engine that knows JSON schemas at most, and no grammar of ours."""
        if wanted.forces_tools:
            raise _unsupported("tool_choice")
        is_json, schema = wanted.json_schema
        if not is_json:
            raise _unsupported("tools")
        if wanted.tools:
            raise _unsupported("response_format")
        if schema is None:
            return self._as_is("json_object", "", "response_format", wanted)
        return self._as_is("json_schema", msgspec.json.encode(schema).decode(), "response_format", wanted)

    def _write(self, wanted: Wanted, target: GrammarTarget) -> str | None:
        is_json, schema = wanted.json_schema
        if is_json and not wanted.forces_tools:
            assert wanted.response_format is not None
            return response_format_constraint(
                self._format,
                schema,
                target=target,
                tools=wanted.tools,
                parallel=wanted.parallel,
                start=wanted.start,
                tokens=self._tokens,
                lenient=self._lenient,
                path=wanted.response_format.schema_field,
            )
        return tool_call_constraint(
            self._format,
            wanted.tools,
            wanted.choice,
            target=target,
            parallel=wanted.parallel,
            start=wanted.start,
            tokens=self._tokens,
            lenient=self._lenient,
        )


def _digest(wanted: Wanted, target: GrammarTarget) -> bytes:
    """Of all that a grammar is made of: of one size, whatever a client sends."""
    tools = [(tool.name, tool.parameters, tool.strict) for tool in wanted.tools]
    parts = (target, wanted.json_schema, tools, wanted.choice, wanted.parallel, wanted.start.value)
    return hashlib.sha256(msgspec.json.encode(parts)).digest()


def _unsupported(param: str) -> RequestError:
    return field_error(param, "this engine cannot enforce it", ErrorCode.UNSUPPORTED_PARAMETER)
