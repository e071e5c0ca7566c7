"""Chat templates: Jinja text to prompt text, in the environment that Hugging Face gives to templates.

Never knows what a message is: it hands variables to a template and takes text. Two invariants: a template renders to
exactly the text that `transformers` (5.24, ``utils/chat_template_utils.py``) gives for the same variables, and a
render ends: it fails as a `PromptError` when it takes too long, writes too much, or reaches out of the sandbox.

How a render is bounded: the compiler below adds one call to every loop body and macro body, which looks at the clock
each 1,024th time and at the process's memory each 65,536th; the output is counted as it is written; and the operators,
filters and calls that can make a huge value in one step, or let one grow step by step, are checked. What is left is a
list that holds itself many times over by way of others, and is written out at once.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import jinja2
from jinja2 import meta, nodes
from jinja2.compiler import CodeGenerator, Frame, MacroRef, optimizeconst
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from paraserve.prompt.errors import PromptError
from paraserve.prompt.template_bounds import (
    CHECKED_SIZE,
    MAX_MEMORY_GROWTH,
    MAX_VALUE_SIZE,
    NOTICED_SIZE,
    RenderLimitError,
    bounded_filter,
    bounded_join,
    bounded_replace,
    bounded_sum,
    fitting,
    format_size,
    joined,
    largest_number,
    longest,
    replaced_size,
    resident,
    result_size,
)
from paraserve.protocol.error_codes import ErrorCode
from paraserve.tokenizers.base import CheckpointError, reading

T = TypeVar("T")

MAX_RENDER_SECONDS = 10.0
MAX_OUTPUT_CHARS = 50_000_000
MAX_INDENT = 100
MAX_ERROR_CHARS = 2_000

RENDER_FAULTS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What Python raises inside a template that meets messages it was not written for."""


class TemplateRefusal(jinja2.TemplateError):
    """The template called ``raise_exception``: its words are for the client."""


class _BoundedContext(Context):
    """Counts the iterations of one render, and what it makes of growing values; stops it at its bounds."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ticks = self._made = 0
        self._began: int | None = None
        """The process's memory when it was first looked at: before anything large is held."""
        self._deadline = time.monotonic() + MAX_RENDER_SECONDS

    def tick(self) -> None:
        self._ticks += 1
        if not self._ticks & 1023:
            if time.monotonic() > self._deadline:
                raise RenderLimitError("it ran too long")
            if not self._ticks & 65_535:
                self._check_memory()

    def concat(self, join: Callable[[Iterable[Any]], str], parts: tuple[Any, ...]) -> str:
        """What ``~`` makes."""
        size = 0
        for part in parts:
            size += len(part) if isinstance(part, str) else 1
        if size > MAX_VALUE_SIZE:
            raise RenderLimitError("a text is too large")
        return self.grown(join(parts))

    def grown(self, value: T) -> T:
        """What ``+`` makes."""
        if isinstance(value, (str, list, tuple)) and len(value) > NOTICED_SIZE:
            if len(value) > MAX_VALUE_SIZE:
                raise RenderLimitError("a value is too large")
            self._made += len(value)
            if self._made > CHECKED_SIZE:
                self._made = 0
                self._check_memory()
        return value

    def _check_memory(self) -> None:
        size = resident()
        if self._began is None:
            self._began = size
        elif size > self._began + MAX_MEMORY_GROWTH:
            raise RenderLimitError("it took too much memory")


class _BoundedCodeGenerator(CodeGenerator):
    """Jinja's compiler, with a tick at the head of every loop body and macro body."""

    _TICK = nodes.Const("tick")

    @optimizeconst
    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        markup = "context.eval_ctx.autoescape" if frame.eval_ctx.volatile else str(frame.eval_ctx.autoescape)
        self.write(f"context.concat(markup_join if {markup} else str_join, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        self.write("context.grown(")
        super().visit_Add(node, frame)
        self.write(")")

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        node.body = [nodes.ExprStmt(self._TICK), *node.body]
        super().visit_For(node, frame)

    def macro_body(self, node: nodes.Macro | nodes.CallBlock, frame: Frame) -> tuple[Frame, MacroRef]:
        node.body = [nodes.ExprStmt(self._TICK), *node.body]
        return super().macro_body(node, frame)

    def visit_ExprStmt(self, node: nodes.ExprStmt, frame: Frame) -> None:
        if node.node is self._TICK:
            self.writeline("context.tick()")
        else:
            super().visit_ExprStmt(node, frame)


class _GenerationTag(Extension):
    """``{% generation %}``: marks training targets; at inference it is its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(lineno)

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


class _Namespace(Namespace):
    """``namespace()`` without names that lead to Python's internals."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        Namespace.__init__(args[0], *args[1:], **kwargs)
        for name in dict(*args[1:], **kwargs):
            _check_name(name)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace has no attribute {name}: names start with a letter")


class _DictConstructor:
    """``dict()`` as a template sees it: no class, so nothing to climb from."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


_DICT_ATTRIBUTES = frozenset(dir(dict))
_HUGE_FORMAT = re.compile(r"\{[^{}]*\d{8}")
_WIDTH_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "to_bytes"})


class ChatTemplateEnvironment(ImmutableSandboxedEnvironment):
    """The variables, filters, tags and whitespace rules that chat templates are written for."""

    code_generator_class = _BoundedCodeGenerator
    context_class = _BoundedContext
    intercepted_binops = frozenset({"*", "**", "%"})
    concat = staticmethod(lambda parts: joined(list(parts)))  # what blocks and macros write

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
        self.filters["tojson"] = tojson
        for name in ("batch", "center", "indent", "slice"):
            self.filters[name] = bounded_filter(name, largest_number)
        self.filters["join"] = bounded_join
        self.filters["format"] = bounded_filter("format", format_size)
        self.filters["replace"] = bounded_replace
        self.filters["sum"] = bounded_sum
        self.globals["raise_exception"] = raise_exception
        self.globals["strftime_now"] = strftime_now
        self.globals["dict"] = _DictConstructor()
        self.globals["namespace"] = _Namespace
        del self.globals["lipsum"]

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Jinja's rule, without the exception that it raises and catches for every key of a message."""
        if type(obj) is dict and attribute not in _DICT_ATTRIBUTES:
            try:
                return obj[attribute]
            except KeyError:
                return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if result_size(operator, left, right) > MAX_VALUE_SIZE:
            raise RenderLimitError(f"an operand of {operator} is too large")
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(__obj, "__name__", None) in _WIDTH_METHODS and any(
            isinstance(value, int) and value > MAX_VALUE_SIZE for value in (*args, *kwargs.values())
        ):
            raise RenderLimitError("a width is too large")
        # The sandbox hands out str.format wrapped in a function of its own.
        text = getattr(getattr(__obj, "__wrapped__", None), "__self__", None)
        if isinstance(text, str) and _HUGE_FORMAT.search(text):
            raise RenderLimitError("a width is too large")
        if isinstance(text, str) and text.count("{") * longest((*args, *kwargs.values())) > MAX_VALUE_SIZE:
            raise RenderLimitError("a text is too large")
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str) and __obj.__name__ == "join" and args:
            args = (fitting(args[0], owner), *args[1:])
        if isinstance(owner, str) and __obj.__name__ == "replace" and replaced_size(owner, *args) > MAX_VALUE_SIZE:
            raise RenderLimitError("a replacement is too large")
        return super().call(__context, __obj, *args, **kwargs)


_ENCODE_JSON = json.JSONEncoder(ensure_ascii=False).encode


def tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as chat templates expect it: no HTML escapes, no ASCII escapes, ``", "`` and ``": "`` between items."""
    if isinstance(indent, int) and indent > MAX_INDENT:
        raise RenderLimitError("an indent is too large")
    if not ensure_ascii and indent is None and separators is None and not sort_keys:
        return _ENCODE_JSON(value)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message: object) -> None:
    raise TemplateRefusal(str(message))


def strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """One compiled template. Rendering changes nothing in it: threads may share it."""

    source: str
    name: str
    variables: frozenset[str]
    """Names that the template reads and does not surely set itself: what a request's template kwargs may set."""
    _template: jinja2.Template

    @classmethod
    def compile(cls, source: str, name: str = "default") -> ChatTemplate:
        """Raises `CheckpointError` for a template that is no Jinja."""
        environment = ChatTemplateEnvironment()
        with reading(f"chat template {name!r}"):
            try:
                variables = meta.find_undeclared_variables(environment.parse(source))
                template = environment.from_string(source)
            except jinja2.TemplateSyntaxError as error:
                raise CheckpointError(
                    f"chat template {name!r} is broken at line {error.lineno}: {error.message}; "
                    "give a working one with --chat-template FILE"
                ) from error
        template.globals = dict(template.globals)  # every rendering copies them: a ChainMap is slow to copy
        return cls(source, name, frozenset(variables - set(environment.globals)), template)

    def render(self, variables: Mapping[str, Any]) -> str:
        """The prompt text. Raises `PromptError` for whatever stops the template, with its words where it has any."""
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.root_render_func(self._template.new_context(dict(variables))):
                parts.append(part)
                size += len(part)
                if size > MAX_OUTPUT_CHARS:
                    raise RenderLimitError("it wrote too much")
        except TemplateRefusal as error:
            raise PromptError(_shorten(str(error)), "messages", ErrorCode.TEMPLATE_ERROR) from error
        except RenderLimitError as error:
            message = f"The model's chat template was stopped: {error}."
            raise PromptError(message, "messages", ErrorCode.TEMPLATE_LIMIT) from error
        except RENDER_FAULTS as error:
            message = f"The model's chat template cannot render these messages: {_shorten(str(error))}"
            raise PromptError(message, "messages", ErrorCode.TEMPLATE_ERROR) from error
        return "".join(parts)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_ERROR_CHARS else text[:MAX_ERROR_CHARS] + "…"
