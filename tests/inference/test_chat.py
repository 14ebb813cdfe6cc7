"""The chat template, and what must not get into a prompt through it."""

import pytest
from support import tiny
from vernacular.inference.model.rendering import render

# how Llama 3.2 and SmolLM3 come to write the day
LLAMA = (
    "{%- if not date_string is defined %}{%- if strftime_now is defined %}{%- set date_string = strftime_now('%d %b %Y') %}"
    "{%- else %}{%- set date_string = '26 Jul 2024' %}{%- endif %}{%- endif %}"
    "Today Date: {{ date_string }}|{% for m in messages %}{{ m['content'] }}{% endfor %}"
)
SMOLLM = "{%- set today = strftime_now('%d %B %Y') -%}Today: {{ today }}|{% for m in messages %}{{ m['content'] }}{% endfor %}"


# one that has a date of its own where it is given none
DATED = (
    "{%- if not date_string is defined %}{%- set date_string = '26 Jul 2024' %}{%- endif %}"
    "Today Date: {{ date_string }}|{% for m in messages %}{{ m['content'] }}{% endfor %}"
)


@pytest.mark.parametrize("template", [LLAMA, SMOLLM, DATED])
def test_the_day_of_the_run_is_not_in_the_prompt(template):
    loaded = tiny.loaded("llama")
    loaded.tokenizer.chat_template = template
    try:
        prompt = render(loaded, [{"role": "user", "content": "Ola"}])
    finally:
        loaded.tokenizer.chat_template = None  # the tokenizer is shared
    head, _, rest = prompt.partition("|")
    assert rest == "Ola"
    assert not any(letter.isdigit() for letter in head)
