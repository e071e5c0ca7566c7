"""What a chat template takes, learned by rendering small probes: never from a model's name.

Never sees a real request. Two invariants: a capability is True only if a probe came out whole (nothing lost, no
Python or JSON spelling of our objects in the text, nothing raised), and the same template always gives the same
capabilities.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from paraserve.prompt import probes
from paraserve.prompt.probes import CallText, Prober, References, ResultOrder, UserBehindResults
from paraserve.prompt.template import ChatTemplate

EFFORTS = ("none", "no_think", "minimal", "low", "medium", "high", "xhigh", "max")
EFFORT_VARIABLES = ("reasoning_effort", "thinking_effort")
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
MEDIA_FORMS: Mapping[str, tuple[str, ...]] = {
    "image": ("image_url", "image", "input_image"),
    "video": ("video_url", "video"),
    "audio": ("input_audio", "audio_url", "audio"),
}
"""Part types to try for each kind of media; the first is OpenAI's own."""


@dataclass(frozen=True, slots=True)
class ThinkingSwitch:
    """A template kwarg that turns reasoning on and off, and its values."""

    name: str
    on: bool | str
    off: bool | str


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    """Facts about one template. The defaults are those of a template that takes everything."""

    renders: bool = True
    """The simplest conversation renders. Where it does not, nothing else was learned."""
    system: bool = True
    system_in_tool_turn: bool = True
    """The system text is still there when the conversation ends with a tool result."""
    leading_systems: bool = True
    """Several system messages at the head are all rendered."""
    late_system: bool = True
    """A system message after other turns is rendered."""
    leading_mixed: bool = True
    """A system and then a developer message at the head are both rendered."""
    developer: bool = True
    """The template names the developer role, and renders it at the head."""
    late_developer: bool = True
    lists: frozenset[str] = frozenset({"user", "system", "assistant", "call", "tool"})
    """Where content may be a list of parts. ``call`` is an assistant message with tool calls."""
    media: Mapping[str, str] = field(default_factory=dict)
    """The part type that shows media, by role and kind (``user.image``)."""
    tools: bool = True
    """Declared tools are in the prompt."""
    bare_tools: bool = True
    """A declared tool may have neither description nor parameters."""
    message_tools: bool = True
    """A system message may declare tools."""
    references: References = "shown"
    """What a tool's schema refers to is in the prompt: as it was sent, where the definition stands in the place of the
    reference, or only in a parameter's description."""
    type_lists: bool = True
    """A parameter may have a list of types."""
    calls: bool = True
    """Tool calls in the history are in the prompt."""
    results: bool = True
    """Tool results are in the prompt."""
    arguments: frozenset[Literal["string", "object"]] = frozenset({"string", "object"})
    call_contents: frozenset[Literal["text", "empty", "null", "missing"]] = frozenset(
        {"text", "empty", "null", "missing"}
    )
    """Contents beside which tool calls are rendered."""
    call_text: CallText = "shown"
    """Text beside tool calls: rendered (in every turn, or only until the turn has its answer); or rendered as a message
    of its own before the calls (in every round, in every round but the first, or only once in the last turn); or
    neither."""
    parallel: Literal["native", "split", "none"] = "native"
    """Several calls in a message: rendered, rendered as one message a call, or not at all."""
    result_order: ResultOrder = "named"
    """Of the results of parallel calls: the prompt says which call each answers; or the template sorts them; or each is
    read as the next call's, in the order in which they were sent."""
    late_results: bool = True
    """A result that does not stand right behind its call is in the prompt."""
    user_behind_results: UserBehindResults = "direct"
    """A user's message may follow tool results: as it is, or behind an assistant's turn with this content."""
    user_behind_user: bool = True
    """Two users' messages may stand side by side."""
    empty_turns: bool = True
    """An assistant's turn in which nothing is said may stand in the history."""
    short_ids: bool = False
    """Tool call ids must be nine letters or digits."""
    reasoning_fields: frozenset[str] = frozenset(REASONING_FIELDS)
    """Fields of an assistant message that put reasoning into the prompt; ``part`` is a thinking part."""
    reasoning_beside_text: bool = True
    """A message with tool calls may have both reasoning and text."""
    thinking_switches: tuple[ThinkingSwitch, ...] = ()
    """Template kwargs that turn reasoning on and off."""
    effort_variable: str | None = None
    efforts: tuple[str, ...] = ()
    """Values of reasoning effort that the template takes."""
    content_lead: str = ""
    """Blanks that the template writes between the generation prompt and an assistant's content: the model does, too."""
    absent_tools_as_none: bool = True
    """Without tools the template is called with ``tools=None``, as Hugging Face does; else without the name."""
    variables: tuple[str, ...] = ()
    """Names that template kwargs may set."""


def probe_template(template: ChatTemplate, special_tokens: Mapping[str, str]) -> TemplateCapabilities:
    """Learn a template: some hundred renders of a few lines each."""
    prober = Prober(template, special_tokens)
    variables = tuple(sorted(_settable(template)))
    if not prober.render([probes.user(probes.USER)]):
        return TemplateCapabilities(renders=False, variables=variables)
    return TemplateCapabilities(
        absent_tools_as_none=prober.absent_tools_as_none,
        variables=variables,
        **_call_facts(prober),
        **_system_facts(prober, template.source),
        **_switch_facts(prober, template),
        **_reasoning_facts(prober),
        **_turn_facts(prober),
        content_lead=prober.content_lead(),
        lists=_list_roles(prober),
        media=_media_forms(prober),
    )


def _settable(template: ChatTemplate) -> set[str]:
    """Variables without the names that Jinja only thinks may be unset: assigned in a branch, and never asked for."""
    asked = re.compile(r"\b(\w+) +is +(?:not +)?(?:un)?defined|\b(\w+) *\| *default\b|\bnot +(\w+) +is +defined")
    named = {name for match in asked.findall(template.source) for name in match if name}
    assigned = set(re.findall(r"\{%[-+]? *(?:set|for) +(\w+)", template.source))
    standard = {"messages", "tools", "documents", "add_generation_prompt", *probes.SPECIAL_TOKEN_VARIABLES}
    return {name for name in template.variables - standard if name in named or name not in assigned}


def _call_facts(prober: Prober) -> dict[str, Any]:
    """Finds the shape of a tool turn that works, and keeps it in the prober for later probes."""
    working = [shape for shape in probes.call_shapes() if prober.shows_call(shape)]
    tools = probes.NAME in prober.render([probes.user(probes.USER)], tools=probes.TOOLS)
    facts: dict[str, Any] = {
        "tools": tools,
        "bare_tools": not tools or prober.shows_bare_tool(),
        "message_tools": prober.shows_message_tools(),
        "references": prober.references() if tools else "shown",
        "type_lists": not tools or prober.shows_tool_with({"type": ["string", "null"], "description": "d"}, probes.KEY),
        "calls": bool(working),
    }
    if not working:
        return facts | {"results": False, "call_contents": frozenset(), "call_text": "dropped", "parallel": "none"}
    prober.shape = working[0]
    arguments, call_id = prober.shape.arguments, prober.shape.call_id
    contents: set[str] = {
        shape.content for shape in working if (shape.arguments, shape.call_id) == (arguments, call_id)
    }
    with_text = prober.render(prober.tool_turn(content=probes.TEXT), tools=probes.TOOLS)
    if probes.VALUE in with_text:
        contents.add("text")
    return facts | {
        "results": probes.shows(prober.render(prober.tool_turn(), tools=probes.TOOLS), probes.VALUE, probes.RESULT),
        "arguments": frozenset(shape.arguments for shape in working if shape.call_id == call_id),
        "call_contents": frozenset(contents),
        "call_text": prober.call_text(),
        "result_order": prober.result_order(),
        "late_results": prober.late_results(),
        "user_behind_results": prober.user_behind_results(),
        "short_ids": call_id == probes.SHORT_IDS[0],
        "parallel": prober.parallel(),
    }


def _turn_facts(prober: Prober) -> dict[str, Any]:
    asked, next_one = probes.user(probes.USER), probes.user(probes.NEXT)
    return {
        "user_behind_user": probes.shows(prober.render([asked, next_one]), probes.USER, probes.NEXT),
        "empty_turns": probes.shows(prober.render([asked, probes.assistant(""), next_one]), probes.USER, probes.NEXT),
    }


def _system_facts(prober: Prober, source: str) -> dict[str, Any]:
    system, user, assistant = probes.system, probes.user, probes.assistant
    developer = {"role": "developer", "content": probes.SYSTEM}
    late = {**developer, "content": probes.LATE}
    head = [user(probes.USER), assistant(probes.TEXT)]

    def whole(*messages: dict[str, Any], texts: tuple[str, ...]) -> bool:
        return all(text in prober.render(list(messages)) for text in texts)

    takes_system = whole(system(probes.SYSTEM), user(probes.USER), texts=(probes.SYSTEM, probes.USER)) and whole(
        system(probes.SYSTEM), *head, user(probes.NEXT), texts=(probes.SYSTEM, probes.NEXT)
    )
    names_developer = re.search(r"""["']developer["']""", source) is not None
    takes_developer = names_developer and whole(developer, user(probes.USER), texts=(probes.SYSTEM, probes.USER))
    tool_turn = prober.render([system(probes.SYSTEM), *prober.tool_turn()], tools=probes.TOOLS)
    return {
        "system": takes_system,
        "system_in_tool_turn": takes_system and (prober.shape is None or probes.SYSTEM in tool_turn),
        "leading_systems": whole(
            system(probes.SYSTEM), system(probes.LATE), user(probes.USER), texts=(probes.SYSTEM, probes.LATE)
        ),
        "leading_mixed": takes_developer
        and whole(system(probes.SYSTEM), late, user(probes.USER), texts=(probes.SYSTEM, probes.LATE)),
        "late_system": whole(*head, system(probes.LATE), user(probes.NEXT), texts=(probes.LATE, probes.NEXT))
        and (
            not takes_system
            or whole(
                system(probes.SYSTEM),
                *head,
                system(probes.LATE),
                user(probes.NEXT),
                texts=(probes.SYSTEM, probes.LATE, probes.NEXT),
            )
        ),
        "developer": takes_developer,
        "late_developer": takes_developer
        and whole(system(probes.SYSTEM), *head, late, user(probes.NEXT), texts=(probes.SYSTEM, probes.LATE)),
    }


def _reasoning_facts(prober: Prober) -> dict[str, Any]:
    def shown(fields: Mapping[str, Any], *texts: str) -> bool:
        text = prober.with_reasoning(fields)
        return probes.shows(text, *texts) and not probes.leaks(text)

    accepted = {name for name in REASONING_FIELDS if shown({name: probes.REASON}, probes.REASON)}
    beside = True
    if accepted:
        beside = bool(prober.with_reasoning({**dict.fromkeys(accepted, probes.REASON), "content": probes.TEXT}))
    else:
        parts = [{"type": "thinking", "thinking": probes.REASON}, {"type": "text", "text": probes.TEXT}]
        opened = prober.with_reasoning({"content": parts[1:]})
        if shown({"content": parts}, probes.REASON, probes.TEXT) and probes.shows(opened, probes.TEXT):
            accepted = {"part"}
    return {"reasoning_fields": frozenset(accepted), "reasoning_beside_text": beside}


def _switch_facts(prober: Prober, template: ChatTemplate) -> dict[str, Any]:
    """Finds the kwargs that change the simplest prompt, and turns reasoning on for later probes."""
    ask = [probes.user(probes.USER)]
    effort = next((name for name in EFFORT_VARIABLES if name in template.variables), None)
    switches = []
    for name in sorted(template.variables):
        if name == effort or "budget" in name or not re.search("think|reason", name):
            continue
        for on, off in ((True, False), ("enabled", "disabled"), ("on", "off")):
            named = isinstance(on, bool) or all(_quotes(template.source, word) for word in (on, str(off)))
            if named and len({prober.render(ask, None, {name: value}) for value in (on, off)} - {""}) == 2:
                switches.append(ThinkingSwitch(name, on, off))
                break
    prober.thinking_on = {switch.name: switch.on for switch in switches}
    # A template that only prints the effort renders any word: "no reasoning" counts where the template names it.
    tried = [value for value in EFFORTS if value not in ("none", "no_think") or _quotes(template.source, value)]
    efforts = [value for value in tried if effort and prober.render(ask, None, {effort: value})]
    return {"thinking_switches": tuple(switches), "effort_variable": effort, "efforts": tuple(efforts)}


def _quotes(source: str, word: str) -> bool:
    return f"'{word}'" in source or f'"{word}"' in source


def _list_roles(prober: Prober) -> frozenset[str]:
    parts = probes.PARTS
    user = probes.user
    turns: dict[str, tuple[list[dict[str, Any]], Any]] = {
        "user": ([user(parts)], None),
        "system": ([probes.system(parts), user(probes.USER)], None),
        "assistant": ([user(probes.USER), probes.assistant(parts), user(probes.NEXT)], None),
        "call": (prober.tool_turn(content=parts), probes.TOOLS),
        "tool": (prober.tool_turn(result=parts), probes.TOOLS),
    }
    return frozenset(
        role for role, (messages, tools) in turns.items() if probes.shows_parts(prober.render(messages, tools=tools))
    )


def _media_forms(prober: Prober) -> dict[str, str]:
    forms = {}
    for role in ("user", "tool", "system"):
        for kind, names in MEDIA_FORMS.items():
            for name in names:
                if prober.shows_media(role, name):
                    forms[f"{role}.{kind}"] = name
                    break
    return forms
