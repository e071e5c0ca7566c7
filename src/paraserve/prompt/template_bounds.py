"""What one operation of a chat template may make, told before it is made where that can be told.

Knows values alone, no template. Invariant: what is within bounds comes out as Jinja's own operation has it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jinja2
from jinja2.filters import FILTERS, make_attrgetter

MAX_VALUE_SIZE = 10_000_000
"""The longest text or list, and the most bits of a number, that one operator or call of a template may make."""
NOTICED_SIZE = 10_000
CHECKED_SIZE = 20_000_000
"""What texts and lists that are longer than `NOTICED_SIZE` come to together, until memory is looked at."""
MAX_MEMORY_GROWTH = 2**30
"""Bytes that the process may grow by while a template is rendered, whoever takes them."""


class RenderLimitError(jinja2.TemplateError):
    """A render was stopped."""


def resident() -> int:
    """Bytes of memory that this process has; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as pages:
            return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


_FORMAT_WIDTHS = re.compile(r"%(?:\(\w*\))?[-+ #0]*(\d+|\*)?(?:\.(\d+|\*))?")


def result_size(operator: str, left: Any, right: Any) -> float:
    """How large ``left operator right`` will be: items of a sequence, or bits of a number."""
    if operator == "*":
        for sequence, times in ((left, right), (right, left)):
            if isinstance(times, int) and isinstance(sequence, (str, bytes)):
                return len(sequence) * max(times, 0)
            if isinstance(times, int) and isinstance(sequence, (list, tuple)):
                return weight(sequence) * max(times, 0)
        if isinstance(left, int) and isinstance(right, int):
            return left.bit_length() + right.bit_length()
    if operator == "**" and isinstance(left, int) and isinstance(right, int):
        return left.bit_length() * max(right, 0)
    if operator == "%" and isinstance(left, str):
        widths = [width for spec in _FORMAT_WIDTHS.findall(left) for width in spec if width]
        given = right if isinstance(right, tuple) else (right,)
        stars = [value for value in given if isinstance(value, int)] if "*" in widths else []
        named = right.values() if isinstance(right, Mapping) else given
        written = float(left.count("%") * longest(named))
        return max((float(width) for width in [*widths, *stars] if width != "*"), default=0.0) + written
    return 0


def longest(values: Iterable[Any]) -> int:
    """The longest text among them."""
    return max((len(value) for value in values if isinstance(value, str)), default=0)


def weight(value: Any, known: dict[int, int] | None = None) -> int:
    """Items and characters of a value, written out: what it holds twice counts twice, and is looked at once."""
    if isinstance(value, str):
        return len(value)
    if not isinstance(value, (list, tuple, Mapping)):
        return 1
    known = {} if known is None else known
    if id(value) not in known:
        items = value.values() if isinstance(value, Mapping) else value
        known[id(value)] = 1 + sum(weight(item, known) for item in items)
    return known[id(value)]


def fitting(items: Iterable[Any], between: str = "") -> list[Any]:
    """The items, if they can be joined within bounds."""
    found = list(items)
    if sum(len(item) for item in found if isinstance(item, str)) + len(found) * len(between) > MAX_VALUE_SIZE:
        raise RenderLimitError("a text is too large")
    return found


def joined(parts: list[str]) -> str:
    return "".join(fitting(parts))


def bounded_join(eval_ctx: Any, value: Any, d: str = "", attribute: Any = None) -> str:
    if attribute is not None:
        value = map(make_attrgetter(eval_ctx.environment, attribute), value)
    joined: str = FILTERS["join"](eval_ctx, fitting(value, str(d)), d)
    return joined


bounded_join.jinja_pass_arg = FILTERS["join"].jinja_pass_arg  # type: ignore[attr-defined]


def bounded_filter(name: str, size: Callable[..., float]) -> Callable[..., Any]:
    """Jinja's own filter, refused where ``size`` of its arguments says that the result will be huge."""
    original = FILTERS[name]

    def bounded(*args: Any, **kwargs: Any) -> Any:
        if size(*args, **kwargs) > MAX_VALUE_SIZE:
            raise RenderLimitError(f"an argument of {name} is too large")
        return original(*args, **kwargs)

    return bounded


def largest_number(*args: Any, **kwargs: Any) -> float:
    return max((value for value in (*args, *kwargs.values()) if isinstance(value, int)), default=0)


def replaced_size(value: Any, old: Any = "", new: Any = "", *_: Any, **__: Any) -> float:
    """Of a text in which each ``old`` has become ``new``, at the most."""
    text, old, new = str(value), str(old), str(new)
    if len(text) + (len(text) // max(len(old), 1) + 1) * len(new) <= MAX_VALUE_SIZE:
        return 0
    return len(text) + text.count(old) * (len(new) - len(old))


def bounded_replace(value: Any, old: Any, new: Any, count: int | None = None) -> str:
    """Jinja's own, without its escapes for HTML."""
    if replaced_size(value, old, new) > MAX_VALUE_SIZE:
        raise RenderLimitError("a replacement is too large")
    return str(value).replace(str(old), str(new), -1 if count is None else count)


def bounded_sum(environment: Any, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
    """Jinja's own, of numbers that a processor adds at once, or of lists in less than the square of their lengths."""
    items = list(iterable if attribute is None else map(make_attrgetter(environment, attribute), iterable))
    if len(items) * sum(addend(item) for item in (start, *items)) > MAX_VALUE_SIZE:
        raise RenderLimitError("a sum is too large")
    return sum(items, start)


bounded_sum.jinja_pass_arg = FILTERS["sum"].jinja_pass_arg  # type: ignore[attr-defined]


def addend(item: Any) -> int:
    """What a step of a sum costs for one: items of a list; of a number, what is beyond a word of the processor."""
    if isinstance(item, (list, tuple)):
        return len(item)
    return item.bit_length() // 1024 if isinstance(item, int) else 0


def format_size(value: Any, *args: Any, **kwargs: Any) -> float:
    return result_size("%", str(value), args or kwargs)
