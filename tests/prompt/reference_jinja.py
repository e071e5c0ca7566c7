"""Jinja as Hugging Face sets it up for chat templates, written apart from paraserve: what our renders are held to."""

import json
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser):  # type: ignore[no-untyped-def]
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Raised(Exception):
    """The template called ``raise_exception``."""


def _raise(message: str) -> None:
    raise Raised(message)


def render(source: str, messages: list[dict[str, Any]], tools: Any = None, **variables: Any) -> str:
    """What plain Jinja makes of messages."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = lambda value, ensure_ascii=False, **rest: json.dumps(
        value, ensure_ascii=ensure_ascii, **rest
    )
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda pattern: datetime.now().strftime(pattern)
    given = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, "documents": None, **variables}
    return environment.from_string(source).render(messages=messages, tools=tools, **given)
