"""One reply of every family, written out by hand-checked rendering: reasoning, content and three calls.

The texts stand alone: a change of a description that changes what is written shows up here as a difference.
"""

REASONING = "Two tasks.\nFirst the note — 先."
CONTENT = "Working on it… ✍️"
CALLS = [
    (
        "save_note",
        {
            "title": " Zürich\t",
            "body": "  if a < b:\n\treturn \"x\" && '{}'\n",
            "stars": 3,
            "opts": {"pin": True, "tags": ["a", "<b>"]},
        },
    ),
    ("list_shelves", {}),
    ("v2.set-rate", {"rate": 1.5, "exact": False, "label": "null and void"}),
]

REPLIES: dict[str, str] = {
    "glm45": (
        "\n"
        "<think>Two tasks.\n"
        "First the note — 先.</think>\n"
        "Working on it… ✍️\n"
        "<tool_call>save_note\n"
        "<arg_key>title</arg_key>\n"
        "<arg_value> Zürich\t</arg_value>\n"
        "<arg_key>body</arg_key>\n"
        "<arg_value>  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "</arg_value>\n"
        "<arg_key>stars</arg_key>\n"
        "<arg_value>3</arg_value>\n"
        "<arg_key>opts</arg_key>\n"
        '<arg_value>{"pin": true, "tags": ["a", "<b>"]}</arg_value>\n'
        "</tool_call>\n"
        "<tool_call>list_shelves\n"
        "</tool_call>\n"
        "<tool_call>v2.set-rate\n"
        "<arg_key>rate</arg_key>\n"
        "<arg_value>1.5</arg_value>\n"
        "<arg_key>exact</arg_key>\n"
        "<arg_value>false</arg_value>\n"
        "<arg_key>label</arg_key>\n"
        "<arg_value>null and void</arg_value>\n"
        "</tool_call>"
    ),
    "glm47": (
        "<think>Two tasks.\n"
        "First the note — 先.</think>Working on it… ✍️<tool_call>save_note<arg_key>title</arg_key><arg_va"
        "lue> Zürich\t</arg_value><arg_key>body</arg_key><arg_value>  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "</arg_value><arg_key>stars</arg_key><arg_value>3</arg_value><arg_key>opts</arg_key><arg_value>{"
        '"pin": true, "tags": ["a", "<b>"]}</arg_value></tool_call><tool_call>list_shelves</tool_call><t'
        "ool_call>v2.set-rate<arg_key>rate</arg_key><arg_value>1.5</arg_value><arg_key>exact</arg_key><a"
        "rg_value>false</arg_value><arg_key>label</arg_key><arg_value>null and void</arg_value></tool_ca"
        "ll>"
    ),
    "ling3": (
        "<think>Two tasks.\n"
        "First the note — 先.</think>Working on it… ✍️\n"
        "<tool_call>save_note\n"
        "<arg_key>title</arg_key>\n"
        "<arg_value> Zürich\t</arg_value><arg_key>body</arg_key>\n"
        "<arg_value>  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "</arg_value><arg_key>stars</arg_key>\n"
        "<arg_value>3</arg_value><arg_key>opts</arg_key>\n"
        '<arg_value>{"pin": true, "tags": ["a", "<b>"]}</arg_value>\n'
        "</tool_call>\n"
        "<tool_call>list_shelves\n"
        "\n"
        "</tool_call>\n"
        "<tool_call>v2.set-rate\n"
        "<arg_key>rate</arg_key>\n"
        "<arg_value>1.5</arg_value><arg_key>exact</arg_key>\n"
        "<arg_value>false</arg_value><arg_key>label</arg_key>\n"
        "<arg_value>null and void</arg_value>\n"
        "</tool_call>"
    ),
    "hunyuan3": (
        "<think:opensource>Two tasks.\n"
        "First the note — 先.</think:opensource>Working on it… ✍️<tool_calls:opensource>\n"
        "<tool_call:opensource>save_note<tool_sep:opensource>\n"
        "<arg_key:opensource>title</arg_key:opensource>\n"
        "<arg_value:opensource> Zürich\t</arg_value:opensource>\n"
        "<arg_key:opensource>body</arg_key:opensource>\n"
        "<arg_value:opensource>  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "</arg_value:opensource>\n"
        "<arg_key:opensource>stars</arg_key:opensource>\n"
        "<arg_value:opensource>3</arg_value:opensource>\n"
        "<arg_key:opensource>opts</arg_key:opensource>\n"
        '<arg_value:opensource>{"pin": true, "tags": ["a", "<b>"]}</arg_value:opensource>\n'
        "</tool_call:opensource>\n"
        "<tool_call:opensource>list_shelves<tool_sep:opensource>\n"
        "</tool_call:opensource>\n"
        "<tool_call:opensource>v2.set-rate<tool_sep:opensource>\n"
        "<arg_key:opensource>rate</arg_key:opensource>\n"
        "<arg_value:opensource>1.5</arg_value:opensource>\n"
        "<arg_key:opensource>exact</arg_key:opensource>\n"
        "<arg_value:opensource>false</arg_value:opensource>\n"
        "<arg_key:opensource>label</arg_key:opensource>\n"
        "<arg_value:opensource>null and void</arg_value:opensource>\n"
        "</tool_call:opensource>\n"
        "</tool_calls:opensource>"
    ),
    "kimi_k2": (
        "<think>Two tasks.\n"
        "First the note — 先.</think>Working on it… ✍️<|tool_calls_section_begin|><|tool_call_begin|>func"
        'tions.save_note:0<|tool_call_argument_begin|>{"title": " Zürich\\t", "body": "  if a < b:\\n\\tret'
        'urn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}<|tool_call_end|>'
        "<|tool_call_begin|>functions.list_shelves:1<|tool_call_argument_begin|>{}<|tool_call_end|><|too"
        'l_call_begin|>functions.v2.set-rate:2<|tool_call_argument_begin|>{"rate": 1.5, "exact": false, '
        '"label": "null and void"}<|tool_call_end|><|tool_calls_section_end|>'
    ),
    "kimi_k3": (
        "<|open|>think<|sep|>Two tasks.\n"
        "First the note — 先.<|close|>think<|sep|><|open|>response<|sep|>Working on it… ✍️<|close|>respon"
        'se<|sep|><|open|>tools<|sep|><|open|>call tool="save_note" index="1"<|sep|><|open|>argument key'
        '="title" type="string"<|sep|> Zürich\t<|close|>argument<|sep|><|open|>argument key="body" type="'
        'string"<|sep|>  if a < b:\n'
        "\treturn \"x\" && '{}'\n"
        '<|close|>argument<|sep|><|open|>argument key="stars" type="number"<|sep|>3<|close|>argument<|se'
        'p|><|open|>argument key="opts" type="object"<|sep|>{"pin": true, "tags": ["a", "<b>"]}<|close|>'
        'argument<|sep|><|close|>call<|sep|><|open|>call tool="list_shelves" index="2"<|sep|><|close|>ca'
        'll<|sep|><|open|>call tool="v2.set-rate" index="3"<|sep|><|open|>argument key="rate" type="numb'
        'er"<|sep|>1.5<|close|>argument<|sep|><|open|>argument key="exact" type="boolean"<|sep|>false<|c'
        'lose|>argument<|sep|><|open|>argument key="label" type="string"<|sep|>null and void<|close|>arg'
        "ument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>"
    ),
    "hermes": (
        "Working on it… ✍️\n"
        "<tool_call>\n"
        '{"name": "save_note", "arguments": {"title": " Zürich\\t", "body": "  if a < b:\\n\\treturn \\"x\\" '
        '&& \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}}\n'
        "</tool_call>\n"
        "<tool_call>\n"
        '{"name": "list_shelves", "arguments": {}}\n'
        "</tool_call>\n"
        "<tool_call>\n"
        '{"name": "v2.set-rate", "arguments": {"rate": 1.5, "exact": false, "label": "null and void"}}\n'
        "</tool_call>"
    ),
    "qwen3": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "\n"
        "Working on it… ✍️\n"
        "<tool_call>\n"
        '{"name": "save_note", "arguments": {"title": " Zürich\\t", "body": "  if a < b:\\n\\treturn \\"x\\" '
        '&& \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}}\n'
        "</tool_call>\n"
        "<tool_call>\n"
        '{"name": "list_shelves", "arguments": {}}\n'
        "</tool_call>\n"
        "<tool_call>\n"
        '{"name": "v2.set-rate", "arguments": {"rate": 1.5, "exact": false, "label": "null and void"}}\n'
        "</tool_call>"
    ),
    "smollm3": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "Working on it… ✍️\n"
        "<tool_call>\n"
        '{"name": "save_note", "arguments": {"title": " Zürich\\t", "body": "  if a < b:\\n\\treturn \\"x\\" '
        '&& \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}}\n'
        "</tool_call>\n"
        "<tool_call>\n"
        '{"name": "list_shelves", "arguments": {}}\n'
        "</tool_call>\n"
        "<tool_call>\n"
        '{"name": "v2.set-rate", "arguments": {"rate": 1.5, "exact": false, "label": "null and void"}}\n'
        "</tool_call>"
    ),
    "smollm2": (
        'Working on it… ✍️<tool_call>[{"name": "save_note", "arguments": {"title": " Zürich\\t", "body": '
        '"  if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]'
        '}}}, {"name": "list_shelves", "arguments": {}}, {"name": "v2.set-rate", "arguments": {"rate": 1'
        '.5, "exact": false, "label": "null and void"}}]</tool_call>'
    ),
    "minimax_m1": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "\n"
        "Working on it… ✍️\n"
        "<tool_calls>\n"
        '{"name": "save_note", "arguments": {"title": " Zürich\\t", "body": "  if a < b:\\n\\treturn \\"x\\" '
        '&& \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}}\n'
        '{"name": "list_shelves", "arguments": {}}\n'
        '{"name": "v2.set-rate", "arguments": {"rate": 1.5, "exact": false, "label": "null and void"}}\n'
        "</tool_calls>"
    ),
    "qwen3_coder": (
        "Working on it… ✍️\n"
        "\n"
        "<tool_call>\n"
        "<function=save_note>\n"
        "<parameter=title>\n"
        " Zürich\t\n"
        "</parameter>\n"
        "<parameter=body>\n"
        "  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "\n"
        "</parameter>\n"
        "<parameter=stars>\n"
        "3\n"
        "</parameter>\n"
        "<parameter=opts>\n"
        '{"pin": true, "tags": ["a", "<b>"]}\n'
        "</parameter>\n"
        "</function>\n"
        "</tool_call>\n"
        "<tool_call>\n"
        "<function=list_shelves>\n"
        "</function>\n"
        "</tool_call>\n"
        "<tool_call>\n"
        "<function=v2.set-rate>\n"
        "<parameter=rate>\n"
        "1.5\n"
        "</parameter>\n"
        "<parameter=exact>\n"
        "False\n"
        "</parameter>\n"
        "<parameter=label>\n"
        "null and void\n"
        "</parameter>\n"
        "</function>\n"
        "</tool_call>"
    ),
    "qwen35": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "\n"
        "Working on it… ✍️\n"
        "\n"
        "<tool_call>\n"
        "<function=save_note>\n"
        "<parameter=title>\n"
        " Zürich\t\n"
        "</parameter>\n"
        "<parameter=body>\n"
        "  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "\n"
        "</parameter>\n"
        "<parameter=stars>\n"
        "3\n"
        "</parameter>\n"
        "<parameter=opts>\n"
        '{"pin": true, "tags": ["a", "<b>"]}\n'
        "</parameter>\n"
        "</function>\n"
        "</tool_call>\n"
        "<tool_call>\n"
        "<function=list_shelves>\n"
        "</function>\n"
        "</tool_call>\n"
        "<tool_call>\n"
        "<function=v2.set-rate>\n"
        "<parameter=rate>\n"
        "1.5\n"
        "</parameter>\n"
        "<parameter=exact>\n"
        "False\n"
        "</parameter>\n"
        "<parameter=label>\n"
        "null and void\n"
        "</parameter>\n"
        "</function>\n"
        "</tool_call>"
    ),
    "qwen36": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "\n"
        "Working on it… ✍️\n"
        "\n"
        "<tool_call>\n"
        "<function=save_note>\n"
        "<parameter=title>\n"
        " Zürich\t\n"
        "</parameter>\n"
        "<parameter=body>\n"
        "  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "\n"
        "</parameter>\n"
        "<parameter=stars>\n"
        "3\n"
        "</parameter>\n"
        "<parameter=opts>\n"
        '{"pin": true, "tags": ["a", "<b>"]}\n'
        "</parameter>\n"
        "</function>\n"
        "</tool_call>\n"
        "<tool_call>\n"
        "<function=list_shelves>\n"
        "</function>\n"
        "</tool_call>\n"
        "<tool_call>\n"
        "<function=v2.set-rate>\n"
        "<parameter=rate>\n"
        "1.5\n"
        "</parameter>\n"
        "<parameter=exact>\n"
        "false\n"
        "</parameter>\n"
        "<parameter=label>\n"
        "null and void\n"
        "</parameter>\n"
        "</function>\n"
        "</tool_call>"
    ),
    "step3p5": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "Working on it… ✍️<tool_call>\n"
        "<function=save_note>\n"
        "<parameter=title>\n"
        " Zürich\t\n"
        "</parameter>\n"
        "<parameter=body>\n"
        "  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "\n"
        "</parameter>\n"
        "<parameter=stars>\n"
        "3\n"
        "</parameter>\n"
        "<parameter=opts>\n"
        '{"pin": true, "tags": ["a", "<b>"]}\n'
        "</parameter>\n"
        "</function>\n"
        "</tool_call><tool_call>\n"
        "<function=list_shelves>\n"
        "</function>\n"
        "</tool_call><tool_call>\n"
        "<function=v2.set-rate>\n"
        "<parameter=rate>\n"
        "1.5\n"
        "</parameter>\n"
        "<parameter=exact>\n"
        "False\n"
        "</parameter>\n"
        "<parameter=label>\n"
        "null and void\n"
        "</parameter>\n"
        "</function>\n"
        "</tool_call>"
    ),
    "nemotron3": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "Working on it… ✍️\n"
        "<tool_call>\n"
        "<function=save_note>\n"
        "<parameter=title>\n"
        " Zürich\t\n"
        "</parameter>\n"
        "<parameter=body>\n"
        "  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "\n"
        "</parameter>\n"
        "<parameter=stars>\n"
        "3\n"
        "</parameter>\n"
        "<parameter=opts>\n"
        '{"pin": true, "tags": ["a", "<b>"]}\n'
        "</parameter>\n"
        "</function>\n"
        "</tool_call>\n"
        "<tool_call>\n"
        "<function=list_shelves>\n"
        "</function>\n"
        "</tool_call>\n"
        "<tool_call>\n"
        "<function=v2.set-rate>\n"
        "<parameter=rate>\n"
        "1.5\n"
        "</parameter>\n"
        "<parameter=exact>\n"
        "False\n"
        "</parameter>\n"
        "<parameter=label>\n"
        "null and void\n"
        "</parameter>\n"
        "</function>\n"
        "</tool_call>"
    ),
    "mimo": (
        "<think>Two tasks.\n"
        "First the note — 先.</think>Working on it… ✍️<tool_call>\n"
        "<function=save_note>\n"
        "<parameter=title> Zürich\t</parameter>\n"
        "<parameter=body>  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "</parameter>\n"
        "<parameter=stars>3</parameter>\n"
        '<parameter=opts>{"pin": true, "tags": ["a", "<b>"]}</parameter>\n'
        "</function>\n"
        "</tool_call><tool_call>\n"
        "<function=list_shelves>\n"
        "</function>\n"
        "</tool_call><tool_call>\n"
        "<function=v2.set-rate>\n"
        "<parameter=rate>1.5</parameter>\n"
        "<parameter=exact>False</parameter>\n"
        "<parameter=label>null and void</parameter>\n"
        "</function>\n"
        "</tool_call>"
    ),
    "seed_oss": (
        "<seed:think>Two tasks.\n"
        "First the note — 先.</seed:think>\n"
        "Working on it… ✍️\n"
        "\n"
        "<seed:tool_call>\n"
        "<function=save_note>\n"
        "<parameter=title> Zürich\t</parameter>\n"
        "<parameter=body>  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "</parameter>\n"
        "<parameter=stars>3</parameter>\n"
        "<parameter=opts>{'pin': True, 'tags': ['a', '<b>']}</parameter>\n"
        "</function>\n"
        "</seed:tool_call>\n"
        "<seed:tool_call>\n"
        "<function=list_shelves>\n"
        "</function>\n"
        "</seed:tool_call>\n"
        "<seed:tool_call>\n"
        "<function=v2.set-rate>\n"
        "<parameter=rate>1.5</parameter>\n"
        "<parameter=exact>False</parameter>\n"
        "<parameter=label>null and void</parameter>\n"
        "</function>\n"
        "</seed:tool_call>"
    ),
    "deepseek_r1": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "\n"
        "Working on it… ✍️<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>save_note\n"
        "```json\n"
        '{"title": " Zürich\\t", "body": "  if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"p'
        'in": true, "tags": ["a", "<b>"]}}\n'
        "```<｜tool▁call▁end｜>\n"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>list_shelves\n"
        "```json\n"
        "{}\n"
        "```<｜tool▁call▁end｜>\n"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>v2.set-rate\n"
        "```json\n"
        '{"rate": 1.5, "exact": false, "label": "null and void"}\n'
        "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "deepseek_v3": (
        "Working on it… ✍️<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>save_note\n"
        "```json\n"
        '{"title": " Zürich\\t", "body": "  if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"p'
        'in": true, "tags": ["a", "<b>"]}}\n'
        "```<｜tool▁call▁end｜>\n"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>list_shelves\n"
        "```json\n"
        "{}\n"
        "```<｜tool▁call▁end｜>\n"
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>v2.set-rate\n"
        "```json\n"
        '{"rate": 1.5, "exact": false, "label": "null and void"}\n'
        "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "deepseek_v31": (
        "<think>Two tasks.\n"
        "First the note — 先.</think>Working on it… ✍️<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>save_note<｜t"
        'ool▁sep｜>{"title": " Zürich\\t", "body": "  if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", "stars": 3, "o'
        'pts": {"pin": true, "tags": ["a", "<b>"]}}<｜tool▁call▁end｜><｜tool▁call▁begin｜>list_shelves<｜too'
        'l▁sep｜>{}<｜tool▁call▁end｜><｜tool▁call▁begin｜>v2.set-rate<｜tool▁sep｜>{"rate": 1.5, "exact": fals'
        'e, "label": "null and void"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    "deepseek_v32": (
        "<think>Two tasks.\n"
        "First the note — 先.</think>Working on it… ✍️\n"
        "\n"
        "<｜DSML｜function_calls>\n"
        '<｜DSML｜invoke name="save_note">\n'
        '<｜DSML｜parameter name="title" string="true"> Zürich\t</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="body" string="true">  if a < b:\n'
        "\treturn \"x\" && '{}'\n"
        "</｜DSML｜parameter>\n"
        '<｜DSML｜parameter name="stars" string="false">3</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="opts" string="false">{"pin": true, "tags": ["a", "<b>"]}</｜DSML｜paramete'
        "r>\n"
        "</｜DSML｜invoke>\n"
        '<｜DSML｜invoke name="list_shelves">\n'
        "</｜DSML｜invoke>\n"
        '<｜DSML｜invoke name="v2.set-rate">\n'
        '<｜DSML｜parameter name="rate" string="false">1.5</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="exact" string="false">false</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="label" string="true">null and void</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n"
        "</｜DSML｜function_calls>"
    ),
    "deepseek_v4": (
        "<think>Two tasks.\n"
        "First the note — 先.</think>Working on it… ✍️\n"
        "\n"
        "<｜DSML｜tool_calls>\n"
        '<｜DSML｜invoke name="save_note">\n'
        '<｜DSML｜parameter name="title" string="true"> Zürich\t</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="body" string="true">  if a < b:\n'
        "\treturn \"x\" && '{}'\n"
        "</｜DSML｜parameter>\n"
        '<｜DSML｜parameter name="stars" string="false">3</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="opts" string="false">{"pin": true, "tags": ["a", "<b>"]}</｜DSML｜paramete'
        "r>\n"
        "</｜DSML｜invoke>\n"
        '<｜DSML｜invoke name="list_shelves">\n'
        "</｜DSML｜invoke>\n"
        '<｜DSML｜invoke name="v2.set-rate">\n'
        '<｜DSML｜parameter name="rate" string="false">1.5</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="exact" string="false">false</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="label" string="true">null and void</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n"
        "</｜DSML｜tool_calls>"
    ),
    "deepseek_v41": (
        "<think>Two tasks.\n"
        "First the note — 先.</think>Working on it… ✍️\n"
        "\n"
        "<｜DSML｜ calls>\n"
        '<｜DSML｜ invoke name="save_note">\n'
        '<｜DSML｜ parameter name="title" string="true"> Zürich\t</｜DSML｜ parameter>\n'
        '<｜DSML｜ parameter name="body" string="true">  if a < b:\n'
        "\treturn \"x\" && '{}'\n"
        "</｜DSML｜ parameter>\n"
        '<｜DSML｜ parameter name="stars" string="false">3</｜DSML｜ parameter>\n'
        '<｜DSML｜ parameter name="opts" string="false">{"pin": true, "tags": ["a", "<b>"]}</｜DSML｜ parame'
        "ter>\n"
        "</｜DSML｜ invoke>\n"
        '<｜DSML｜ invoke name="list_shelves">\n'
        "</｜DSML｜ invoke>\n"
        '<｜DSML｜ invoke name="v2.set-rate">\n'
        '<｜DSML｜ parameter name="rate" string="false">1.5</｜DSML｜ parameter>\n'
        '<｜DSML｜ parameter name="exact" string="false">false</｜DSML｜ parameter>\n'
        '<｜DSML｜ parameter name="label" string="true">null and void</｜DSML｜ parameter>\n'
        "</｜DSML｜ invoke>\n"
        "</｜DSML｜ calls>"
    ),
    "minimax_m2": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "\n"
        "Working on it… ✍️\n"
        "<minimax:tool_call>\n"
        '<invoke name="save_note">\n'
        '<parameter name="title"> Zürich\t</parameter>\n'
        '<parameter name="body">  if a < b:\n'
        "\treturn \"x\" && '{}'\n"
        "</parameter>\n"
        '<parameter name="stars">3</parameter>\n'
        '<parameter name="opts">{"pin": true, "tags": ["a", "<b>"]}</parameter>\n'
        "</invoke>\n"
        '<invoke name="list_shelves">\n'
        "</invoke>\n"
        '<invoke name="v2.set-rate">\n'
        '<parameter name="rate">1.5</parameter>\n'
        '<parameter name="exact">false</parameter>\n'
        '<parameter name="label">null and void</parameter>\n'
        "</invoke>\n"
        "</minimax:tool_call>"
    ),
    "minimax_m3": (
        "<mm:think>Two tasks.\n"
        "First the note — 先.</mm:think>Working on it… ✍️]<]minimax[>[<tool_call>\n"
        ']<]minimax[>[<invoke name="save_note">]<]minimax[>[<title> Zürich\t]<]minimax[>[</title>]<]minim'
        "ax[>[<body>  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "]<]minimax[>[</body>]<]minimax[>[<stars>3]<]minimax[>[</stars>]<]minimax[>[<opts>]<]minimax[>[<"
        "pin>true]<]minimax[>[</pin>]<]minimax[>[<tags>]<]minimax[>[<item>a]<]minimax[>[</item>]<]minima"
        "x[>[<item><b>]<]minimax[>[</item>]<]minimax[>[</tags>]<]minimax[>[</opts>]<]minimax[>[</invoke>"
        "\n"
        ']<]minimax[>[<invoke name="list_shelves">]<]minimax[>[</invoke>\n'
        ']<]minimax[>[<invoke name="v2.set-rate">]<]minimax[>[<rate>1.5]<]minimax[>[</rate>]<]minimax[>['
        "<exact>false]<]minimax[>[</exact>]<]minimax[>[<label>null and void]<]minimax[>[</label>]<]minim"
        "ax[>[</invoke>\n"
        "]<]minimax[>[</tool_call>"
    ),
    "mistral_v3": (
        'Working on it… ✍️[TOOL_CALLS] [{"name": "save_note", "arguments": {"title": " Zürich\\t", "body"'
        ': "  if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>'
        '"]}}, "id": "nOtE00001"}, {"name": "list_shelves", "arguments": {}, "id": "sHeLf0002"}, {"name"'
        ': "v2.set-rate", "arguments": {"rate": 1.5, "exact": false, "label": "null and void"}, "id": "r'
        'AtE00003"}]'
    ),
    "mistral_v11": (
        'Working on it… ✍️[TOOL_CALLS]save_note[CALL_ID]nOtE00001[ARGS]{"title": " Zürich\\t", "body": " '
        ' if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}'
        "[TOOL_CALLS]list_shelves[CALL_ID]sHeLf0002[ARGS]{}[TOOL_CALLS]v2.set-rate[CALL_ID]rAtE00003[ARG"
        'S]{"rate": 1.5, "exact": false, "label": "null and void"}'
    ),
    "mistral_v13": (
        "[THINK]Two tasks.\n"
        'First the note — 先.[/THINK]Working on it… ✍️[TOOL_CALLS]save_note[ARGS]{"title": " Zürich\\t", "'
        'body": "  if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a",'
        ' "<b>"]}}[TOOL_CALLS]list_shelves[ARGS]{}[TOOL_CALLS]v2.set-rate[ARGS]{"rate": 1.5, "exact": fa'
        'lse, "label": "null and void"}'
    ),
    "llama3_json": (
        '{"name": "save_note", "parameters": {"title": " Zürich\\t", "body": "  if a < b:\\n\\treturn \\"x\\"'
        ' && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}}; {"name": "list_shelves"'
        ', "parameters": {}}; {"name": "v2.set-rate", "parameters": {"rate": 1.5, "exact": false, "label'
        '": "null and void"}}'
    ),
    "pythonic": (
        '[save_note(title=" Zürich\\t", body="  if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", stars=3, opts={"pin'
        '": True, "tags": ["a", "<b>"]}), list_shelves(), v2.set-rate(rate=1.5, exact=False, label="null'
        ' and void")]'
    ),
    "lfm2": (
        "<think>Two tasks.\n"
        'First the note — 先.</think>Working on it… ✍️<|tool_call_start|>[save_note(title=" Zürich\\t", bo'
        'dy="  if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", stars=3, opts={"pin": True, "tags": ["a", "<b>"]}),'
        ' list_shelves(), v2.set-rate(rate=1.5, exact=False, label="null and void")]<|tool_call_end|>'
    ),
    "gemma4": (
        "<|channel>thought\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        '<channel|>Working on it… ✍️<|tool_call>call:save_note{body:<|"|>  if a < b:\n'
        "\treturn \"x\" && '{}'\n"
        '<|"|>,opts:{pin:true,tags:[<|"|>a<|"|>,<|"|><b><|"|>]},stars:3,title:<|"|> Zürich\t<|"|>}<tool_c'
        "all|><|tool_call>call:list_shelves{}<tool_call|><|tool_call>call:v2.set-rate{exact:false,label:"
        '<|"|>null and void<|"|>,rate:1.5}<tool_call|>'
    ),
    "step3": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "Working on it… ✍️<｜tool_calls_begin｜>\n"
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="save_note">\n'
        '<steptml:parameter name="title"> Zürich\t</steptml:parameter>\n'
        '<steptml:parameter name="body">  if a < b:\n'
        "\treturn \"x\" && '{}'\n"
        "</steptml:parameter>\n"
        '<steptml:parameter name="stars">3</steptml:parameter>\n'
        '<steptml:parameter name="opts">{"pin": true, "tags": ["a", "<b>"]}</steptml:parameter>\n'
        "</steptml:invoke><｜tool_call_end｜>\n"
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="list_shelves">\n'
        "</steptml:invoke><｜tool_call_end｜>\n"
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="v2.set-rate">\n'
        '<steptml:parameter name="rate">1.5</steptml:parameter>\n'
        '<steptml:parameter name="exact">false</steptml:parameter>\n'
        '<steptml:parameter name="label">null and void</steptml:parameter>\n'
        "</steptml:invoke><｜tool_call_end｜>\n"
        "<｜tool_calls_end｜>"
    ),
    "gpt_oss": (
        "<|channel|>analysis<|message|>Two tasks.\n"
        "First the note — 先.<|end|><|start|>assistant<|channel|>commentary<|message|>Working on it… ✍️<|"
        "end|><|start|>assistant<|channel|>commentary to=functions.save_note <|constrain|>json<|message|"
        '>{"title": " Zürich\\t", "body": "  if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"'
        'pin": true, "tags": ["a", "<b>"]}}<|call|><|channel|>commentary to=functions.list_shelves <|con'
        "strain|>json<|message|>{}<|call|><|channel|>commentary to=functions.v2.set-rate <|constrain|>js"
        'on<|message|>{"rate": 1.5, "exact": false, "label": "null and void"}<|call|>'
    ),
    "granite": (
        'Working on it… ✍️<|tool_call|>[{"name": "save_note", "arguments": {"title": " Zürich\\t", "body":'
        ' "  if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]'
        '}}}, {"name": "list_shelves", "arguments": {}}, {"name": "v2.set-rate", "arguments": {"rate": 1.'
        '5, "exact": false, "label": "null and void"}}]'
    ),
    "granite_20b_fc": (
        'Working on it… ✍️<function_call> {"name": "save_note", "arguments": {"title": " Zürich\\t", "body'
        '": "  if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>'
        '"]}}}<function_call> {"name": "list_shelves", "arguments": {}}<function_call> {"name": "v2.set-r'
        'ate", "arguments": {"rate": 1.5, "exact": false, "label": "null and void"}}'
    ),
    "phi4_mini": (
        'Working on it… ✍️functools[{"name": "save_note", "arguments": {"title": " Zürich\\t", "body": "  '
        'if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}},'
        ' {"name": "list_shelves", "arguments": {}}, {"name": "v2.set-rate", "arguments": {"rate": 1.5, "'
        'exact": false, "label": "null and void"}}]'
    ),
    "jamba": (
        "Working on it… ✍️<tool_calls>[\n"
        '    {"name": "save_note", "arguments": {"title": " Zürich\\t", "body": "  if a < b:\\n\\tretu'
        'rn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}},\n'
        '    {"name": "list_shelves", "arguments": {}},\n'
        '    {"name": "v2.set-rate", "arguments": {"rate": 1.5, "exact": false, "label": "null and '
        'void"}}\n'
        "]</tool_calls>"
    ),
    "xlam": (
        '[{"name": "save_note", "arguments": {"title": " Zürich\\t", "body": "  if a < b:\\n\\treturn \\"x\\" '
        '&& \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}}, {"name": "list_shelves", '
        '"arguments": {}}, {"name": "v2.set-rate", "arguments": {"rate": 1.5, "exact": false, "label": "n'
        'ull and void"}}]'
    ),
    "hunyuan_a13b": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "<answer>\n"
        "Working on it… ✍️\n"
        '</answer><tool_calls>[{"name": "save_note", "arguments": {"title": " Zürich\\t", "body": "  if a '
        '< b:\\n\\treturn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}}, {"na'
        'me": "list_shelves", "arguments": {}}, {"name": "v2.set-rate", "arguments": {"rate": 1.5, "exact'
        '": false, "label": "null and void"}}]</tool_calls>'
    ),
    "cohere_command3": (
        "<|START_THINKING|>Two tasks.\n"
        "First the note — 先.<|END_THINKING|><|START_RESPONSE|>Working on it… ✍️<|END_RESPONSE|><|START_AC"
        "TION|>[\n"
        '    {"tool_name": "save_note", "parameters": {"title": " Zürich\\t", "body": "  if a < b:\\n\\tretu'
        'rn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}},\n'
        '    {"tool_name": "list_shelves", "parameters": {}},\n'
        '    {"tool_name": "v2.set-rate", "parameters": {"rate": 1.5, "exact": false, "label": "null and '
        'void"}}\n'
        "]<|END_ACTION|>"
    ),
    "cohere_command4": (
        "<|START_THINKING|>Two tasks.\n"
        "First the note — 先.<|END_THINKING|><|START_TEXT|>Working on it… ✍️<|END_TEXT|><|START_ACTION|>[\n"
        '    {"tool_name": "save_note", "parameters": {"title": " Zürich\\t", "body": "  if a < b:\\n\\tretu'
        'rn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}},\n'
        '    {"tool_name": "list_shelves", "parameters": {}},\n'
        '    {"tool_name": "v2.set-rate", "parameters": {"rate": 1.5, "exact": false, "label": "null and '
        'void"}}\n'
        "]<|END_ACTION|>"
    ),
    "apertus": (
        "<|inner_prefix|>Two tasks.\n"
        'First the note — 先.<|inner_suffix|>Working on it… ✍️<|tools_prefix|>[{"save_note": {"title": " Z'
        'ürich\\t", "body": "  if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "ta'
        'gs": ["a", "<b>"]}}}, {"list_shelves": {}}, {"v2.set-rate": {"rate": 1.5, "exact": false, "label'
        '": "null and void"}}]<|tools_suffix|>'
    ),
    "olmo3": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "\n"
        "Working on it… ✍️<function_calls>\n"
        'save_note(title=" Zürich\\t", body="  if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", stars=3, opts={"pin":'
        ' True, "tags": ["a", "<b>"]})\n'
        "list_shelves()\n"
        'v2.set-rate(rate=1.5, exact=False, label="null and void")\n'
        "</function_calls>"
    ),
    "interns1": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "\n"
        "Working on it… ✍️<|action_start|> <|plugin|>\n"
        '{"name": "save_note", "parameters": {"title": " Zürich\\t", "body": "  if a < b:\\n\\treturn \\"x\\" '
        '&& \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}}<|action_end|><|action_star'
        "t|> <|plugin|>\n"
        '{"name": "list_shelves", "parameters": {}}<|action_end|><|action_start|> <|plugin|>\n'
        '{"name": "v2.set-rate", "parameters": {"rate": 1.5, "exact": false, "label": "null and void"}}<|'
        "action_end|>"
    ),
    "longcat": (
        "Working on it… ✍️\n"
        "<longcat_tool_call>\n"
        '{"name": "save_note", "arguments": {"title": " Zürich\\t", "body": "  if a < b:\\n\\treturn \\'
        '"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}}\n'
        "</longcat_tool_call><longcat_tool_call>\n"
        '{"name": "list_shelves", "arguments": {}}\n'
        "</longcat_tool_call><longcat_tool_call>\n"
        '{"name": "v2.set-rate", "arguments": {"rate": 1.5, "exact": false, "label": "null and void'
        '"}}\n'
        "</longcat_tool_call>"
    ),
    "longcat2": (
        "<longcat_think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</longcat_think>\n"
        "Working on it… ✍️<longcat_tool_call>save_note\n"
        "<longcat_arg_key>title</longcat_arg_key>\n"
        "<longcat_arg_value> Zürich\t</longcat_arg_value>\n"
        "<longcat_arg_key>body</longcat_arg_key>\n"
        "<longcat_arg_value>  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "</longcat_arg_value>\n"
        "<longcat_arg_key>stars</longcat_arg_key>\n"
        "<longcat_arg_value>3</longcat_arg_value>\n"
        "<longcat_arg_key>opts</longcat_arg_key>\n"
        '<longcat_arg_value>{"pin": true, "tags": ["a", "<b>"]}</longcat_arg_value>\n'
        "</longcat_tool_call>\n"
        "<longcat_tool_call>list_shelves\n"
        "</longcat_tool_call>\n"
        "<longcat_tool_call>v2.set-rate\n"
        "<longcat_arg_key>rate</longcat_arg_key>\n"
        "<longcat_arg_value>1.5</longcat_arg_value>\n"
        "<longcat_arg_key>exact</longcat_arg_key>\n"
        "<longcat_arg_value>false</longcat_arg_value>\n"
        "<longcat_arg_key>label</longcat_arg_key>\n"
        "<longcat_arg_value>null and void</longcat_arg_value>\n"
        "</longcat_tool_call>"
    ),
    "ernie45": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "\n"
        "<response>\n"
        "Working on it… ✍️\n"
        "</response>\n"
        "\n"
        "<tool_call>\n"
        '{"name": "save_note", "arguments": {"title": " Zürich\\t", "body": "  if a < b:\\n\\treturn \\"x\\" &'
        '& \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags": ["a", "<b>"]}}}\n'
        "</tool_call>\n"
        "<tool_call>\n"
        '{"name": "list_shelves", "arguments": {}}\n'
        "</tool_call>\n"
        "<tool_call>\n"
        '{"name": "v2.set-rate", "arguments": {"rate": 1.5, "exact": false, "label": "null and void"}}\n'
        "</tool_call>"
    ),
    "dots": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "\n"
        "Working on it… ✍️\n"
        "<dots_function_call>\n"
        '<invoke name="save_note">\n'
        '<parameter name="title">\n'
        " Zürich\t\n"
        "</parameter>\n"
        '<parameter name="body">\n'
        "  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "\n"
        "</parameter>\n"
        '<parameter name="stars">\n'
        "3\n"
        "</parameter>\n"
        '<parameter name="opts">\n'
        '{"pin": true, "tags": ["a", "<b>"]}\n'
        "</parameter>\n"
        "</invoke>\n"
        "</dots_function_call>\n"
        "<dots_function_call>\n"
        '<invoke name="list_shelves">\n'
        "</invoke>\n"
        "</dots_function_call>\n"
        "<dots_function_call>\n"
        '<invoke name="v2.set-rate">\n'
        '<parameter name="rate">\n'
        "1.5\n"
        "</parameter>\n"
        '<parameter name="exact">\n'
        "false\n"
        "</parameter>\n"
        '<parameter name="label">\n'
        "null and void\n"
        "</parameter>\n"
        "</invoke>\n"
        "</dots_function_call>"
    ),
    "gigachat35": (
        "<think>\n"
        "Two tasks.\n"
        "First the note — 先.\n"
        "</think>\n"
        "\n"
        "Working on it… ✍️<｜GCML｜tool_calls>\n"
        '<｜GCML｜invoke name="save_note">\n'
        '<｜GCML｜parameter name="title" string="true"> Zürich\t</｜GCML｜parameter>\n'
        '<｜GCML｜parameter name="body" string="true">  if a < b:\n'
        "\treturn \"x\" && '{}'\n"
        "</｜GCML｜parameter>\n"
        '<｜GCML｜parameter name="stars" string="false">3</｜GCML｜parameter>\n'
        '<｜GCML｜parameter name="opts" string="false">{"pin": true, "tags": ["a", "<b>"]}</｜GCML｜parameter'
        ">\n"
        "</｜GCML｜invoke>\n"
        '<｜GCML｜invoke name="list_shelves">\n'
        "</｜GCML｜invoke>\n"
        '<｜GCML｜invoke name="v2.set-rate">\n'
        '<｜GCML｜parameter name="rate" string="false">1.5</｜GCML｜parameter>\n'
        '<｜GCML｜parameter name="exact" string="false">false</｜GCML｜parameter>\n'
        '<｜GCML｜parameter name="label" string="true">null and void</｜GCML｜parameter>\n'
        "</｜GCML｜invoke>\n"
        "</｜GCML｜tool_calls>"
    ),
    "iquest_q1": (
        "<think>Two tasks.\n"
        "First the note — 先.</think>Working on it… ✍️<iquest_tool_call>save_note<arg_key>title</arg"
        "_key><arg_value> Zürich\t</arg_value><arg_key>body</arg_key><arg_value>  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "</arg_value><arg_key>stars</arg_key><arg_value>3</arg_value><arg_key>opts</arg_key><arg_va"
        'lue>{"pin": true, "tags": ["a", "<b>"]}</arg_value></iquest_tool_call><iquest_tool_call>li'
        "st_shelves</iquest_tool_call><iquest_tool_call>v2.set-rate<arg_key>rate</arg_key><arg_valu"
        "e>1.5</arg_value><arg_key>exact</arg_key><arg_value>false</arg_value><arg_key>label</arg_k"
        "ey><arg_value>null and void</arg_value></iquest_tool_call>"
    ),
    "plamo3": (
        "<|plamo:begin_think:plamo|>Two tasks.\n"
        "First the note — 先.<|plamo:end_think:plamo|>Working on it… ✍️<|plamo:begin_tool_requests:plamo|>"
        "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>save_note<|plamo:end_tool_name:"
        'plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{"title": " Züric'
        'h\\t", "body": "  if a < b:\\n\\treturn \\"x\\" && \'{}\'\\n", "stars": 3, "opts": {"pin": true, "tags":'
        ' ["a", "<b>"]}}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:begin_t'
        "ool_request:plamo|><|plamo:begin_tool_name:plamo|>list_shelves<|plamo:end_tool_name:plamo|><|pla"
        "mo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{}<|plamo:end_tool_arguments:"
        "plamo|><|plamo:end_tool_request:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name"
        ":plamo|>v2.set-rate<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:cons"
        'train|>json<|plamo:msg|>{"rate": 1.5, "exact": false, "label": "null and void"}<|plamo:end_tool_'
        "arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>"
    ),
    "functiongemma": (
        "Working on it… ✍️<start_function_call>call:save_note{body:<escape>  if a < b:\n"
        "\treturn \"x\" && '{}'\n"
        "<escape>,opts:{pin:true,tags:[<escape>a<escape>,<escape><b><escape>]},stars:3,title:<escape> Zür"
        "ich\t<escape>}<end_function_call><start_function_call>call:list_shelves{}<end_function_call><star"
        "t_function_call>call:v2.set-rate{exact:false,label:<escape>null and void<escape>,rate:1.5}<end_f"
        "unction_call>"
    ),
}
