"""Markup that several families share: the usual block of reasoning, and the ways of writing calls.

What differs between families is an argument; what one family alone writes stands in its own description.
"""

from dataclasses import replace

from paraserve.formats.spec import Calls, JsonEnvelope, Keywords, Parameters, Reasoning

TIGHT = Reasoning("<think>", "</think>")
LINED = Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n")
SPACED = Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n\n")

NAME_AND_ARGUMENTS = JsonEnvelope()
PARAMETERS_FIRST = JsonEnvelope(arguments_keys=("parameters", "arguments"))


def json_tag(tag: str, *, between: str = "\n", before: str = "\n") -> Calls:
    """Each call as a JSON object between tags of its own."""
    return Calls(f"<{tag}>\n", NAME_AND_ARGUMENTS, f"\n</{tag}>", between=between, before=before)


def other_calls(tag: str = "tool_call") -> tuple[Calls, ...]:
    """What models write now and then where their family writes JSON objects in tags: a list of them, and functions."""
    return (json_list(f"<{tag}>", f"</{tag}>"), *functions(tag=tag)[:3])


def functions(
    *, arguments: Parameters | None = None, tag: str = "tool_call", between: str = "", before: str = ""
) -> tuple[Calls, ...]:
    """``function=`` tags with ``parameter=`` tags in them, and how else models write the first; then the same without
    the outer opening tag, which models leave out now and then."""
    spelled = arguments or Parameters("<parameter={key}>\n", "\n</parameter>\n")
    lead = spelled.open[len(spelled.open.rstrip()) :]
    spelled = replace(spelled, also_opens=(f'<parameter name="{{key}}">{lead}', f"<parameter {{key}}>{lead}"))
    bare = Calls("<function={name}>\n", spelled, f"</function>\n</{tag}>", between=between, before=before)
    named = replace(bare, open='<function name="{name}">\n')
    inside = (
        replace(call, open=f"<{tag}>\n{call.open}") for call in (bare, named, replace(bare, open="<function {name}>\n"))
    )
    return (*inside, bare, named)


def json_list(
    opening: str, closing: str = "", *, envelope: JsonEnvelope = NAME_AND_ARGUMENTS, lines: bool = False
) -> Calls:
    """All calls as one JSON array, each on an indented line of its own where ``lines`` says so.

    An empty ``opening`` makes it bare.
    """
    first, last = ("\n    ", "\n") if lines else ("", "")
    between = "," + (first or " ")
    return Calls("", envelope, "", f"{opening}[{first}", f"{last}]{closing}", between=between, bare=not opening)


def python_list(opening: str = "", closing: str = "", *, repeats: bool = False) -> Calls:
    """All calls as one list of Python calls; bare without an ``opening``."""
    return Calls(
        "{name}(",
        Keywords(loose=True),
        ")",
        f"{opening}[",
        f"]{closing}",
        between=", ",
        bare=not opening,
        repeats=repeats,
    )


def invokes(section: str, mark: str = "", *, typed: bool = False, before: str = "") -> Calls:
    """A section of ``invoke`` tags with ``parameter`` tags in them, all of which begin with ``mark``. Models leave out
    the mark of a closing tag, and what says that a value is a string."""
    kind = ' string="{string}"' if typed else ""
    opening = f'<{mark}parameter name="{{key}}"'
    return Calls(
        f'<{mark}invoke name="{{name}}">\n',
        Parameters(
            f"{opening}{kind}>",
            f"</{mark}parameter>\n",
            also_opens=(f"{opening}>",) if typed else (),
            also_closes=("</parameter>",) if mark else (),
            wraps=typed,
        ),
        f"</{mark}invoke>\n",
        f"<{section}>\n",
        f"</{section}>",
        before=before,
    )


def respelled(calls: Calls, *pairs: tuple[str, str]) -> Calls:
    """The same calls with other text in all of their markup."""

    def spell(text: str) -> str:
        for written, read in pairs:
            text = text.replace(written, read)
        return text

    arguments = calls.arguments
    if isinstance(arguments, Parameters):
        opens = tuple(spell(text) for text in arguments.also_opens)
        arguments = replace(arguments, open=spell(arguments.open), close=spell(arguments.close), also_opens=opens)
    return replace(
        calls,
        open=spell(calls.open),
        arguments=arguments,
        close=spell(calls.close),
        section_open=spell(calls.section_open),
        section_close=spell(calls.section_close),
    )


def pairs(
    between: str = "", after: str = "", *, prefix: str = "", suffix: str = "", call: str = "tool_call"
) -> Parameters:
    """Arguments as a key tag and a value tag each. Models leave one of the tags out, or write another one for it."""
    key, value = f"{prefix}arg_key{suffix}", f"{prefix}arg_value{suffix}"
    begin, end, open_ = f"<{key}>", f"</{key}>", f"<{value}>"
    others = (f"<{prefix}{call}{suffix}>", begin, end, open_, f"</{value}>")
    firsts = [f"{other}{{key}}{end}{open_}" for other in others if other != begin]
    seconds = [f"{begin}{{key}}{other}{open_}" for other in others if other not in (end, open_)]
    thirds = [f"{begin}{{key}}{end}{other}" for other in others[3:] if other != open_]
    return Parameters(
        f"{begin}{{key}}{end}{between}{open_}",
        f"</{value}>{after}",
        also_opens=(
            f"{{key}}{end}{open_}",
            *firsts,
            f"{begin}{{key}}{open_}",
            *seconds,
            *thirds,
            f"{begin}{{key}}{end}",
        ),
        also_closes=(end, open_),
    )
