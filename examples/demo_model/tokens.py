"""The demo's tokenizer: byte-level BPE whose words never carry a space or a quote.

A word therefore has the same ids in the request and in the answer, which is what makes copying
learnable. The fixed pieces of the tool-call form are single tokens.
"""

from __future__ import annotations

import random

from generate import copy_task, sample
from jinja2 import Environment
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
FORM = (
    "<tool_call>\n",
    "</tool_call>",
    "<function=",
    "</function>\n",
    "<parameter=",
    "\n</parameter>\n",
    ">\n",
)
WORDS = r"\p{L}[\p{L}_]*|\p{N}|\n|[^\p{L}\p{N}\n]"

# The form of Clover's own template without its system text: calls as in `format_answer`, results
# of tools as a user's turn. `tools` is not used: the model knows its tools by name.
CHAT_TEMPLATE = """\
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {%- if loop.first or loop.previtem.role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
            {%- set call = call.function or call %}
            {{- '\\n' if message.content or not loop.first }}
            {{- '<tool_call>\\n<function=' + call.name + '>\\n' }}
            {%- for key, value in call.arguments | items %}
                {{- '<parameter=' + key + '>\\n' }}
                {{- value if value is string else value | tojson }}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
_TEMPLATE = Environment(trim_blocks=True, lstrip_blocks=True).from_string(CHAT_TEMPLATE)


def chat_prompt(messages: list[dict]) -> str:
    """What the chat template makes of a chat whose next turn is the assistant's."""
    return _TEMPLATE.render(messages=messages, add_generation_prompt=True)


def train_tokenizer(vocab_size: int, examples: int = 40000) -> Tokenizer:
    """Train on the generator's own text; the seed is fixed, so the result is too."""
    rng = random.Random(7)
    texts = []
    for i in range(examples):
        ex = copy_task(rng) if i % 10 == 0 else sample(rng, 0.3)
        texts += [ex.request, ex.answer, "user\n", "assistant\n"]
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens(list(SPECIAL))
    tok.add_tokens([AddedToken(t, normalized=False) for t in FORM])
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(FORM),
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    plain = [t for text in texts for t in split_form(text)]
    tok.train_from_iterator(plain, trainer)
    tok.add_tokens([AddedToken(t, normalized=False) for t in FORM])
    return tok


def split_form(text: str) -> list[str]:
    """The pieces of `text` between the fixed pieces of the form."""
    for piece in FORM:
        text = text.replace(piece, "\0")
    return [part for part in text.split("\0") if part]
