"""Markup that several families share: the usual block of reasoning, and the ways of writing calls.

What differs between families is an argument; what one family alone writes stands in its own description.
"""

from paraserve.formats.spec import Calls, JsonEnvelope, Keywords, Parameters, Reasoning

TIGHT = Reasoning("<think>", "</think>")
LINED = Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n")
SPACED = Reasoning("<think>", "</think>", open_after="\n", close_before="\n", close_after="\n\n")

NAME_AND_ARGUMENTS = JsonEnvelope()
PARAMETERS_FIRST = JsonEnvelope(arguments_keys=("parameters", "arguments"))


def json_tag(tag: str, *, between: str = "\n", before: str = "\n") -> Calls:
    """Each call as a JSON object between tags of its own."""
    return Calls(f"<{tag}>\n", NAME_AND_ARGUMENTS, f"\n</{tag}>", between=between, before=before)


def json_list(
    opening: str, closing: str = "", *, envelope: JsonEnvelope = NAME_AND_ARGUMENTS, lines: bool = False
) -> Calls:
    """All calls as one JSON array, each on an indented line of its own where ``lines`` says so.

    An empty ``opening`` makes it bare.
    """
    first, last = ("\n    ", "\n") if lines else ("", "")
    between = "," + (first or " ")
    return Calls("", envelope, "", f"{opening}[{first}", f"{last}]{closing}", between=between, bare=not opening)


def python_list(opening: str = "", closing: str = "") -> Calls:
    """All calls as one list of Python calls; bare without an ``opening``."""
    return Calls("{name}(", Keywords(), ")", f"{opening}[", f"]{closing}", between=", ", bare=not opening)


def invokes(section: str, mark: str = "", *, typed: bool = False, before: str = "") -> Calls:
    """A section of ``invoke`` tags with ``parameter`` tags in them, all of which begin with ``mark``."""
    kind = ' string="{string}"' if typed else ""
    return Calls(
        f'<{mark}invoke name="{{name}}">\n',
        Parameters(f'<{mark}parameter name="{{key}}"{kind}>', f"</{mark}parameter>\n"),
        f"</{mark}invoke>\n",
        f"<{section}>\n",
        f"</{section}>",
        before=before,
    )


def pairs(between: str = "", after: str = "", *, prefix: str = "", suffix: str = "") -> Parameters:
    """Arguments as a key tag and a value tag each."""
    key, value = f"{prefix}arg_key{suffix}", f"{prefix}arg_value{suffix}"
    return Parameters(f"<{key}>{{key}}</{key}>{between}<{value}>", f"</{value}>{after}")
