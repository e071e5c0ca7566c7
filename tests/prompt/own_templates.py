"""Small chat templates of our own: one that takes little, one that takes much, one that raises."""

PLAIN = """
{%- for m in messages -%}
[{{ m.role }}]{{ m.content }}
{%- for c in m.tool_calls or [] %}<call {{ c.id }} {{ c.function.name }} {{ c.function.arguments | tojson -}}
>{% endfor %}
{{- '\n' }}
{%- endfor -%}
{%- if tools %}TOOLS {{ tools | tojson }}
{% endif %}
{%- if add_generation_prompt %}[assistant]{% if enable_thinking is defined and not enable_thinking %}<think></think>
{%- else %}<think>{% endif %}{% endif -%}
"""
"""Takes strings and objects only, and thinks unless it is told not to."""

LISTS = """
{%- macro text(content) -%}
{%- if content is string %}{{ content }}{% elif content is not none -%}
{%- for p in content -%}
{%- if p.type == 'text' %}{{ p.text }}{% elif p.type == 'image_url' %}<image>{% else %}{{ raise_exception('bad part') }}
{%- endif %}{% endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- for m in messages -%}
[{{ m.role }}]{{ text(m.content) }}
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}
{%- for c in m.tool_calls or [] %}<call {{ c.id }} {{ c.function.name }} {{ c.function.arguments }}>{% endfor %}
{{- '\n' }}
{%- endfor -%}
{%- if tools %}TOOLS {{ tools | tojson }}
{% endif %}
{%- if add_generation_prompt %}[assistant]{% endif -%}
"""
"""Takes lists, nulls, images, string arguments and reasoning."""

STRICT = """
{%- for m in messages -%}
{%- if m.role == 'system' and not loop.first %}{{ raise_exception('system comes first') }}{% endif -%}
{%- if m.role not in ['system', 'user', 'assistant', 'tool'] %}{{ raise_exception('unknown role') }}{% endif -%}
{%- if not loop.first and m.role == 'user' and messages[loop.index0 - 1].role == 'user' -%}
{{ raise_exception('roles must alternate') }}{% endif -%}
{%- if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one call only') }}{% endif -%}
[{{ m.role }}]{{ m.content + '' }}
{%- for c in m.tool_calls or [] %}<call {{ c.function.name }} {{ c.function.arguments | tojson }}>{% endfor %}
{{- '\n' }}
{%- endfor -%}
{%- if tools %}TOOLS {{ tools | tojson }}
{% endif %}
{%- if add_generation_prompt %}[assistant]{% endif -%}
"""
"""Raises on everything that its author did not expect."""
