"""Chat templates that write the current date."""

import pytest
from support import tiny
from vernacular.inference.model.rendering import render

# date handling of Llama 3.2 and SmolLM3
LLAMA = (
    "{%- if not date_string is defined %}{%- if strftime_now is defined %}{%- set date_string = strftime_now('%d %b %Y') %}"
    "{%- else %}{%- set date_string = '26 Jul 2024' %}{%- endif %}{%- endif %}"
    "Today Date: {{ date_string }}|{% for m in messages %}{{ m['content'] }}{% endfor %}"
)
SMOLLM = "{%- set today = strftime_now('%d %B %Y') -%}Today: {{ today }}|{% for m in messages %}{{ m['content'] }}{% endfor %}"


# a template with a default date
DATED = (
    "{%- if not date_string is defined %}{%- set date_string = '26 Jul 2024' %}{%- endif %}"
    "Today Date: {{ date_string }}|{% for m in messages %}{{ m['content'] }}{% endfor %}"
)


@pytest.mark.parametrize("template", [LLAMA, SMOLLM, DATED])
def test_prompt_contains_no_date(template):
    loaded = tiny.load_model("llama")
    loaded.tokenizer.chat_template = template
    try:
        prompt = render(loaded, [{"role": "user", "content": "Ola"}])
    finally:
        loaded.tokenizer.chat_template = None  # the tokenizer is shared
    head, _, text = prompt.partition("|")
    assert text == "Ola"
    assert not any(character.isdigit() for character in head)
