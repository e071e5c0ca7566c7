"""A prompt that ends inside the last assistant message, for a reply that goes on with it.

Never adapts messages. Two invariants: the prompt ends with the client's own last characters, blanks included, and a
thought that the message begins with is in the prompt once, whatever the template makes of reasoning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from paraserve.formats.types import ReplyStart
from paraserve.prompt.capabilities import REASONING_FIELDS
from paraserve.prompt.errors import PromptError
from paraserve.prompt.parts import joined_text, thought_text
from paraserve.prompt.state import StartMarkers, reply_start
from paraserve.prompt.thinking import ThinkingModes

Message = Mapping[str, Any]

END = "\ue000end-of-prefill\ue001"
"""Stands where the prefilled text begins or ends while it is rendered. Private-use characters: no template trims or
splits on them."""


class Render(Protocol):
    def __call__(self, messages: Sequence[Message], generate: bool, kwargs: Mapping[str, Any] = ...) -> str:
        """Messages as text; ``generate`` asks for the generation prompt, ``kwargs`` win over the request's own."""
        ...


@dataclass(frozen=True, slots=True)
class ContinuedPrompt:
    text: str
    prefill: str
    """The text at the end of the prompt that the reply's part goes on with: the thought, or the content."""
    start: ReplyStart
    turned_on: bool = False
    """Reasoning was off, and was turned on for the thought that the client began."""


@dataclass(frozen=True, slots=True)
class _Thought:
    """Reasoning at the head of the prefill."""

    opening: str
    closing: str
    spelled: str
    """The whole prefill as the client spelled it."""
    text: str
    rest: str | None
    """What follows the closing marker; None where the thought is open."""


def continue_final(
    messages: Sequence[Message],
    render: Render,
    markers: StartMarkers,
    modes: ThinkingModes | None = None,
) -> ContinuedPrompt:
    """The prompt that the reply goes on with.

    Content stands where the template puts an assistant's content. A thought stands where the model writes its own: it
    takes the place of an empty block that the template would put there, and reasoning that is off is turned on for it.

    Raises:
        PromptError: the last message is no assistant's text, or the template does not show it.
    """
    last = messages[-1]
    path = f"messages[{len(messages) - 1}]"
    if last["role"] != "assistant" or last.get("tool_calls"):
        raise PromptError(f"{path}: continue_final_message needs an assistant message with text at the end", path)
    content = last.get("content")
    text = content if isinstance(content, str) else joined_text(content or ())
    thought = _thought(last, text, markers)
    if thought is not None:
        return _after_thought(messages, thought, render, markers, modes or ThinkingModes())
    before = _before_content(render, [*messages[:-1], {**last, "content": END}], {})
    if before is None:
        raise PromptError(f"{path}: this model's chat template cannot end a prompt inside a message", path)
    for opener in map(str.strip, markers.content):
        if before.rstrip().endswith(opener) and text.lstrip().startswith(opener):
            text = text.partition(opener)[2]
    return ContinuedPrompt(before + text, text, ReplyStart.CONTENT)


def _thought(message: Message, text: str, markers: StartMarkers) -> _Thought | None:
    """The reasoning that the message begins with: in its own field or part, or spelled in its text."""
    given = message.get("reasoning_content")
    parts = message.get("content")
    if not given and isinstance(parts, list):
        given = "".join(thought for part in parts if (thought := thought_text(part)) is not None)
    for opening, closing in markers.reasoning:
        opening, closing = opening.strip(), closing.strip()
        if isinstance(given, str) and given:
            spelled = f"{opening}{given}{closing}{text}" if text else opening + given
            return _Thought(opening, closing, spelled, given, text or None)
        if text.lstrip().startswith(opening):
            inner, closed, rest = text.partition(opening)[2].partition(closing)
            return _Thought(opening, closing, text, inner, rest if closed else None)
    return None


def _after_thought(
    messages: Sequence[Message],
    thought: _Thought,
    render: Render,
    markers: StartMarkers,
    modes: ThinkingModes,
) -> ContinuedPrompt:
    earlier = messages[:-1]
    kwargs: Mapping[str, Any] = {}
    prompt = render(earlier, True)
    start = reply_start(prompt, markers)
    empty = thought.rest is not None and not thought.text.strip()
    if empty and start is ReplyStart.CONTENT:
        # The template's own way to say that nothing was thought.
        rest = thought.rest or ""
        rest = rest.lstrip("\n") if prompt.endswith("\n") else rest
        return ContinuedPrompt(prompt + rest, rest, ReplyStart.CONTENT)
    off = start is ReplyStart.CONTENT or (modes.off is not None and prompt == render(earlier, True, modes.off))
    if off and not empty:
        for tried in modes.on:
            thinking = render(earlier, True, tried)
            thinking_start = reply_start(thinking, markers)
            if thinking != prompt and thinking_start is not ReplyStart.CONTENT:
                kwargs, prompt, start = tried, thinking, thinking_start
                break
    header = _without_block(prompt, thought, markers)
    if thought.rest is None:
        text = _begin(prompt, header, thought, start, thought.text)
        return ContinuedPrompt(text, thought.spelled, ReplyStart.REASONING, bool(kwargs))
    native = _native(messages, thought, render, kwargs, header)
    if native is None:
        opener = markers.content[0] if markers.content and not _opened(thought.rest, markers.content) else ""
        body = thought.text + thought.closing + opener + thought.rest
        native = _begin(prompt, header, thought, start, body)
    return ContinuedPrompt(native, thought.rest, ReplyStart.CONTENT, bool(kwargs))


def _begin(prompt: str, header: str, thought: _Thought, start: ReplyStart, body: str) -> str:
    """The generation prompt and the thought, with one opening marker between them."""
    if start is ReplyStart.REASONING:
        return prompt + (body[1:] if prompt.endswith("\n") and body.startswith("\n") else body)
    lead = thought.spelled.partition(thought.opening)[0]
    return (prompt if start is ReplyStart.HEADER else header) + lead + thought.opening + body


def _without_block(prompt: str, thought: _Thought, markers: StartMarkers) -> str:
    """The generation prompt up to where reasoning begins."""
    header = prompt
    for ends in ([opener.strip() for opener in markers.content], [thought.closing], [thought.opening]):
        tail = header.rstrip()
        end = next((end for end in ends if end and tail.endswith(end)), None)
        if end is not None:
            header = tail[: -len(end)]
    return header


def _native(
    messages: Sequence[Message],
    thought: _Thought,
    render: Render,
    kwargs: Mapping[str, Any],
    header: str,
) -> str | None:
    """A closed thought with the separators that the template puts around it, where it shows it once and whole. A client
    that wrote these separators itself does not get them twice."""
    rest = thought.rest or ""
    bare = {**messages[-1], **dict.fromkeys(REASONING_FIELDS, thought.text.strip("\n")), "content": END}
    own = _shown_before_content(render, [*messages[:-1], bare], kwargs)
    if own is not None and own.startswith(header):
        block, written = own[len(header) :].lstrip("\n"), thought.spelled.lstrip("\n")
        if written.startswith(block) and _is_block(written, thought):
            return own + written[len(block) :]
    spelled = {**messages[-1], "content": thought.spelled + END}
    fields = {**dict.fromkeys(REASONING_FIELDS, thought.text), "content": END}
    for message, behind in (({**messages[-1], **fields}, rest), (spelled, "")):
        shown = _shown_before_content(render, [*messages[:-1], message], kwargs)
        if shown is not None and shown.startswith(header) and _is_block(shown[len(header) :] + behind, thought):
            return shown + behind
    return None


def _is_block(text: str, thought: _Thought) -> bool:
    """One block with this thought, and then the rest: nothing lost, no empty block before or after it."""
    rest = thought.rest or ""
    lead, _, block = text.partition(thought.opening)
    inner, closed, behind = block.partition(thought.closing)
    between = behind[: len(behind) - len(rest)]
    return (
        bool(closed)
        and not lead.strip()
        and inner.strip() == thought.text.strip()
        and behind.endswith(rest)
        and thought.opening not in between
        and thought.closing not in between
    )


def _opened(text: str, content_openers: Sequence[str]) -> bool:
    return any(text.lstrip().startswith(opener.strip()) for opener in content_openers)


def _shown_before_content(render: Render, messages: Sequence[Message], kwargs: Mapping[str, Any]) -> str | None:
    """`_before_content`, where the template takes this spelling of a thought."""
    try:
        return _before_content(render, messages, kwargs)
    except PromptError:
        return None


def _before_content(render: Render, messages: Sequence[Message], kwargs: Mapping[str, Any]) -> str | None:
    shown = render(messages, False, kwargs)
    return shown[: shown.rfind(END)] if END in shown else None
