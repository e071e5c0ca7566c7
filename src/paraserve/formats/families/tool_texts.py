"""How tools are said in plain messages, for chat templates that know none. The words are ours."""

from collections.abc import Mapping

from paraserve.formats.families.qwen import HERMES
from paraserve.formats.spec import ToolText

TOOL_TEXTS: Mapping[str, ToolText] = {
    "hermes": ToolText(
        HERMES,
        instructions=(
            "# Tools\n\n"
            "You can call the functions below. Each line between <tools> and </tools> declares one, with the JSON "
            "schema of its arguments:\n<tools>\n{tools}\n</tools>\n\n"
            "To call a function, write a JSON object with its name and its arguments between <tool_call> and "
            "</tool_call>, one for each call:\n"
            '<tool_call>\n{"name": "function name", "arguments": {"argument name": "value"}}\n</tool_call>\n'
            "You get its result between <tool_response> and </tool_response>."
        ),
        call="<tool_call>\n{call}\n</tool_call>",
        result="<tool_response>\n{result}\n</tool_response>",
    )
}
DEFAULT_TOOL_TEXT = "hermes"
"""What a small model without tools of its own copies best."""
