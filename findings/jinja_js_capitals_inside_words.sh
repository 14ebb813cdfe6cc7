#!/usr/bin/env bash
# Chat templates are written for Jinja in Python, and run in browsers and Node by @huggingface/jinja, the package of
# Transformers.js. In version 0.5.11, methods and filters of strings give other prompts, without an error: `title`
# finds words by ASCII letters, so that names of languages and people have capitals inside (íslenska becomes íSlenska,
# føroyskt FøRoyskt); `capitalize` makes the first Georgian letter one of the all-capital alphabet, which is never
# mixed with the other in writing; `strip`, `lstrip` and `rstrip` ignore their argument, so that .lstrip('\n') of the
# templates of Qwen3 also removes the spaces (indented verse, U+3000 of Chinese paragraphs) that Python keeps.
# transformers runs Jinja2 (here 3.1.6). Needs Node. (Other rules for title and capitalize are proposed:
# huggingface.js, pull request 2465.)
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet jinja2==3.1.6 2>/dev/null
npm install --silent --prefix "$directory" @huggingface/jinja@0.5.11 >/dev/null
cat > "$directory/render.mjs" <<'NODE'
import { readFileSync } from "node:fs";
import { Template } from "@huggingface/jinja";
const cases = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map(([template, text]) => new Template(template).render({ text }))));
NODE
"$directory/venv/bin/python" - "$directory" <<'PYTHON'
import json
import subprocess
import sys
from importlib.metadata import version

from jinja2.sandbox import ImmutableSandboxedEnvironment

directory = sys.argv[1]
package = json.load(open(f"{directory}/node_modules/@huggingface/jinja/package.json"))
print("@huggingface/jinja", package["version"], "Jinja2", version("jinja2"))
title, capitalize = "{{ text | title }}", "{{ text | capitalize }}"
lstrip = "{{ text.split('</think>')[-1].lstrip('\\n') }}"  # as in Qwen3's template
other = [(title, text) for text in ("íslenska", "føroyskt", "čeština", "davvisámegiella", "àjọ̀gbọ́n")]
other += [(capitalize, "ქართული"), (lstrip, "</think>\n\n  two\n    three"), (lstrip, "</think>\n\u3000\u3000春眠")]
other += [("{{ text.strip('\\n') }}", "\n a \n"), ("{{ text.strip('\"') }}", '"a"')]
same = [(title, "galego"), (capitalize, "íslenska"), (lstrip, "</think>\n\ntwo"), ("{{ text.strip() }}", " a\n")]
cases = other + same
lines = subprocess.run(
    ["node", "render.mjs"], cwd=directory, input=json.dumps(cases), capture_output=True, text=True, check=True
).stdout
environment = ImmutableSandboxedEnvironment()
differs = []
for (template, text), rendered in zip(cases, json.loads(lines), strict=True):
    python = environment.from_string(template).render(text=text)
    differs.append(rendered != python)
    print(f"{template} of {text!r}: Python {python!r}, JavaScript {rendered!r}")
sys.exit(differs != [True] * len(other) + [False] * len(same))
PYTHON
