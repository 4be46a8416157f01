"""Chat templates that write thinking, calls and their answers as the published ones do.

Written for the tests from what those put out; the published ones are not ours to copy.
"""

from __future__ import annotations

_TURNS = """
{%- macro reasoned(message) -%}
    {{- '<think>\\n' + message.reasoning_content | default('') + '\\n</think>\\n\\n' }}
{%- endmacro -%}
{%- if tools %}
    {{- '<|im_start|>system\\n<tools>' }}
    {%- for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor %}
    {{- '\\n</tools><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' }}
        {%- if message.role == 'assistant' %}{{ reasoned(message) }}{% endif %}
        {{- message.content }}
    {%- endif %}
    {%- for call in message.tool_calls | default([]) %}
        {{- '\\n\\n' if loop.first and message.content else '' if loop.first else '\\n' }}
        {{- write_call(call.function) }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {{- '<think>\\n\\n</think>\\n\\n' if enable_thinking is false else '<think>\\n' }}
{%- endif %}
"""

# Qwen3.5, Qwen3-Coder, Clover
XML = (
    """{%- macro write_call(call) %}
    {{- '<tool_call>\\n<function=' + call.name + '>\\n' }}
    {%- for key, value in call.arguments | items %}
        {{- '<parameter=' + key + '>\\n' }}
        {{- value if value is string else value | tojson }}
        {{- '\\n</parameter>\\n' }}
    {%- endfor %}
    {{- '</function>\\n</tool_call>' }}
{%- endmacro -%}"""
    + _TURNS
)

# Qwen2.5, Qwen3, LLaDA2, SDAR: the form of Hermes
JSON = (
    """{%- macro write_call(call) %}
    {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
    {{- call.arguments | tojson }}
    {{- '}\\n</tool_call>' }}
{%- endmacro -%}"""
    + _TURNS
)

# Gemma 4, DiffusionGemma
GEMMA = """
{%- macro argument(value, quoted=true) -%}
    {%- if value is string %}{{ '<|"|>' + value + '<|"|>' }}
    {%- elif value is boolean %}{{ 'true' if value else 'false' }}
    {%- elif value is mapping %}{{ '{' }}
        {%- for key, each in value | items -%}
            {{ ('<|"|>' + key + '<|"|>' if quoted else key) + ':' }}
            {{- argument(each, quoted) + ('' if loop.last else ',') }}
        {%- endfor %}{{ '}' }}
    {%- elif value is sequence %}{{ '[' }}
        {%- for each in value %}
            {{- argument(each, quoted) + ('' if loop.last else ',') }}
        {%- endfor %}{{ ']' }}
    {%- else %}{{ value }}
    {%- endif %}
{%- endmacro -%}
{%- for tool in tools or [] %}{{ '<|tool>' + tool.function.name + '<tool|>' }}{% endfor %}
{%- for message in messages %}
    {{- '<|turn>' + message.role + '\\n' }}
    {%- for call in message.tool_calls | default([]) %}
        {{- '<|tool_call>call:' + call.function.name }}
        {{- argument(call.function.arguments, false) + '<tool_call|>' }}
    {%- endfor %}
    {{- message.content + '<turn|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|turn>model\\n' }}
    {%- if not enable_thinking %}{{ '<|channel>thought\\n<channel|>' }}{% endif %}
{%- endif %}
"""
