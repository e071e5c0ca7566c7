"""Writes what the server of the agents is started with: for each form of calls a script of replies, and a template.

The model that is played reads a file by a tool and answers with the word in it. It says that it remembers its thought
if its first turn, thought and call, stands in the prompt as it said it, and its own call id and the plain result after.
"""

import json
import sys
from pathlib import Path

THOUGHT = "I have to read the file first."
# The tools' names alone: the vocabulary's model reads 8192 tokens, and what agents declare is longer than that.
TEMPLATE = """\
{%- for m in messages -%}
<|im_start|>{{ m.role }}{{ ' ' + m.tool_call_id if ids and m.role == 'tool' else '' }}
{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif -%}
{%- if m.content is string %}{{ m.content }}{% elif m.content -%}
{%- for part in m.content %}{{ part.text }}{% endfor -%}
{%- endif -%}
{%- for call in m.tool_calls or [] -%}
[{{ call.id if ids else '' }} {{ call.function.name }} {{ call.function.arguments | tojson }}]
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- for tool in tools or [] %}[{{ tool.function.name }}]{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif -%}
"""


def spelled(form: str, name: str, number: int, arguments: dict[str, str]) -> str:
    """A call as a model of that form says it, the ``number``-th of the conversation."""
    as_json = json.dumps(arguments)
    if form == "qwen3":
        return f'\n<tool_call>\n{{"name": "{name}", "arguments": {as_json}}}\n</tool_call>'
    if form == "kimi_k2":
        call = f"functions.{name}:{number}<|tool_call_argument_begin|>{as_json}"
        return f"<|tool_calls_section_begin|><|tool_call_begin|>{call}<|tool_call_end|><|tool_calls_section_end|>"
    pairs = "".join(f"<arg_key>{k}</arg_key><arg_value>{v}</arg_value>" for k, v in arguments.items())
    return f"<tool_call>{name}{pairs}</tool_call>"


def replies(form: str, directory: Path) -> list[dict[str, object]]:
    def says(when: str, text: str) -> dict[str, object]:
        return {"when": when, "text": f"<think>{THOUGHT}</think>{text}", "chunk": [1, 3]}

    def calls(when: str, name: str, number: int = 0, **arguments: str) -> dict[str, object]:
        return says(when, spelled(form, name, number, arguments))

    def first_turn(name: str, **arguments: str) -> str:
        """As the template says it, up to the result."""
        call_id = f"functions.{name}:0" if form == "kimi_k2" else ""
        said = f"<think>{THOUGHT}</think>[{call_id} {name} {json.dumps(arguments)}]<|im_end|>\n"
        return said + f"<|im_start|>tool{' ' + call_id if call_id else ''}\n"

    plover = str(directory / "opencode" / "plover.txt")
    copying = "tr a-z A-Z <otter.txt >copy.txt && cat copy.txt"
    return [
        # opencode asks for a title beside.
        says("You are a title generator", "A word"),
        # Codex: read, then write.
        says("OTTER-17", "It is OTTER-17."),
        calls(
            first_turn("exec_command", cmd="cat otter.txt"),
            "exec_command",
            1,
            cmd=copying,
        ),
        says("otter-17", "It is otter-17."),
        calls("otter.txt", "exec_command", cmd="cat otter.txt"),
        # opencode: its own tool.
        says(first_turn("read", filePath=plover), "It is plover-29, as I thought."),
        says("plover-29", "It is plover-29."),
        calls("plover.txt", "read", filePath=plover),
        # All the others: the tool of the program.
        says(first_turn("read_file", path="heron.txt") + "heron-4711", "It is heron-4711, as I thought."),
        says("heron-4711", "It is heron-4711."),
        calls("heron.txt", "read_file", path="heron.txt"),
        says("as JSON", '{"word": "heron-4711"}'),
        says("", "Good day."),
    ]


def main() -> None:
    directory = Path(sys.argv[1])
    (directory / "chat.jinja").write_text(TEMPLATE)
    for form in ("qwen3", "kimi_k2", "glm"):
        script = {
            "model": "scripted",
            "constraints": ["json_schema", "json_object", "regex", "ebnf", "structural_tag"],
            "replies": replies(form, directory),
        }
        (directory / f"{form}.json").write_text(json.dumps(script, indent=1))


if __name__ == "__main__":
    main()
