#!/usr/bin/env bash
# The sentencizer of spaCy is what languages without a trained model have. It knows 128 marks that end a sentence, among them
# those of Armenian, Burmese, Santali and Mongolian, and compares them with whole tokens; but the tokenizer of spaCy 3.8.18
# leaves all except 9 of them in the token of a word of `xx`. "." itself stays there after a letter that spaCy has no class
# for (its own languages Gujarati and Malayalam; Georgian, Inuktitut, Cherokee, Divehi in `xx`) and after a letter with a
# mark that has no composed form (Yoruba ọ̀). A text of any length is then one sentence, and each word before a full stop is
# another word than elsewhere, without a message. Hindi, Tamil, Amharic and Urdu are divided well.
# Exits with 1 if that changes.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
python3 -m venv --without-pip "$directory/venv"
python3 -m pip --python "$directory/venv/bin/python" install --quiet spacy==3.8.18 2>/dev/null
"$directory/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys
from importlib.metadata import version

import spacy
from spacy.pipeline import Sentencizer

print("spacy", version("spacy"))
WELL = {  # three sentences each: I go. The house is big. We came.
    "hi": "मैं जाता हूँ। घर बड़ा है। हम आए।", "ta": "நான் போகிறேன். வீடு பெரியது. நாங்கள் வந்தோம்.",
    "am": "እኔ እሄዳለሁ። ቤቱ ትልቅ ነው። እኛ መጣን።", "ur": "میں جاتا ہوں۔ گھر بڑا ہے۔ ہم آئے۔",
}
ONE = {
    "gu": "હું જાઉં છું. ઘર મોટું છે. અમે આવ્યા.", "ml": "ഞാൻ പോകുന്നു. വീട് വലുതാണ്. ഞങ്ങൾ വന്നു.",
    "hy": "Ես գնում եմ։ Տունը մեծ է։ Մենք եկանք։", "bo": "ང་འགྲོ། ཁང་པ་ཆེན་པོ་རེད། ང་ཚོ་ཡོང་།",
    "xx Georgian": "მე მივდივარ. სახლი დიდია. ჩვენ მოვედით.", "xx Inuktitut": "ᐊᐅᓪᓚᖅᑐᖓ. ᐃᒡᓗ ᐊᖏᔪᖅ. ᑎᑭᑉᐳᒍᑦ.",
    "xx Cherokee": "ᎨᎦ. ᎦᎵᏦᏕ ᎡᏆ. ᎣᎩᎷᏨ.", "xx Burmese": "ကျွန်တော် သွားတယ်။ အိမ် ကြီးတယ်။ ငါတို့ လာတယ်။",
    "xx Divehi": "އަހަރެން ދަން. ގެ ބޮޑު. އަހަރެމެން އައިން.", "xx Santali": "ᱤᱧ ᱪᱟᱞᱟᱜᱼᱟ᱾ ᱚᱲᱟᱜ ᱢᱟᱨᱟᱝ᱾ ᱟᱞᱮ ᱦᱮᱡ᱾",
    "xx Mongolian": "ᠪᠢ ᠶᠠᠪᠤᠨᠠ᠃ ᠭᠡᠷ ᠶᠡᠬᠡ᠃ ᠪᠢᠳᠡ ᠢᠷᠡᠪᠡ᠃",
}
YORUBA = "Ó rí ọkọ̀. Mo fẹ́ràn rẹ̀. Ó dára."  # he saw a car, I like it, it is good


def read(code, text):
    """The number of sentences of a text in a blank pipeline with a sentencizer, and its tokens."""
    pipeline = spacy.blank(code)
    pipeline.add_pipe("sentencizer")
    document = pipeline(text)
    return len(list(document.sents)), [token.text for token in document]


seen = {}
for name, text in {**WELL, **ONE, "yo": YORUBA}.items():
    seen[name], tokens = read(name[:2], text)
    print(f"{name}: {seen[name]} of 3 sentences, tokens {tokens}")
marks = [mark for mark in Sentencizer.default_punct_chars if len(mark) == 1]
ending = [mark for mark in marks if read("xx", f"ab{mark} cd")[0] == 2]
print(f"{len(ending)} of the {len(marks)} marks of the sentencizer end a sentence after a word of `xx`:", *ending)
held = all(seen[name] == 3 for name in WELL) and all(seen[name] == 1 for name in ONE) and seen["yo"] == 1
sys.exit(not (held and len(marks) == 128 and len(ending) == 9))
PYTHON
