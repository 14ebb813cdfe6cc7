"""Rows of the included datasets in the columns of the Hub, made up for the project, and the items that they give."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A task in one language: rows of its split, and (options, indices of the correct ones) of each item.

    `lm_eval` is lm-eval's task on the same dataset, if any, and `configs` the configuration of each row on the Hub.
    """

    task: str
    language: str
    split: str
    rows: list[dict]
    items: list[tuple[list[str], list[int]]]
    lm_eval: str | None = None
    config: str = "default"


def _letters(texts: list[str]) -> dict:
    return {"text": texts, "label": list("ABCDE")[: len(texts)]}


_CITIES = ["Oslo", "Bergen", "Tromsø"]
_TOPICS = ["ciencia e tecnoloxía", "viaxes", "política", "deportes", "saúde", "entretemento", "xeografía"]
_TOPICS_EN = ["travel", "politics", "sports", "health", "entertainment", "geography"]
_ANSWERS = ["yes", "it cannot be known", "no"]
_MCQ = {"option_a": "un", "option_b": "dous", "option_c": "tres", "option_d": "catro"}
_OPTIONS = ["un", "dous", "tres", "catro"]
_EXAM = {"question": "Zenbat?", "candidates": ["bat", "bi", "hiru", "lau"]}
_COPA = {"premise": "Ana jäi koju.", "choice1": "Ta oli haige.", "choice2": "Sadas vihma.", "changed": False}

CASES = [
    Case("uner", "hr", "test", [{"sent_id": "s1", "token": ["Ana", "Pi", "i", "Rim"], "tag": ["B-PER", "I-PER", "O", "B-OTH"]}],
         [(['{"PER": ["Ana Pi"], "ORG": [], "LOC": []}'], [])]),
    Case("masakhaner", "ha", "test", [{"token": ["mako", "Kano"], "tag": ["I-DATE", "B-LOC"]}],
         [(['{"PER": [], "ORG": [], "LOC": ["Kano"], "DATE": ["mako"]}'], [])]),
    Case("sib200", "gl", "test",
         [{"index_id": 7, "category": "travel", "text": "O tren sae ás dez."}, {"index_id": 9, "category": "sports", "text": "Gañaron."}],
         [(_TOPICS, [1]), (_TOPICS, [3])]),
    Case("sib200", "en", "test", [{"index_id": 7, "category": "health", "text": "Wash your hands."}],
         [(["science and technology", *_TOPICS_EN], [4])], "sib_eng_prompt_1", "eng_Latn"),
    Case("global_piqa", "sr-Latn-x-torlak", "test",
         [{"prompt": "Kad prži luk,", "solution0": "seče ga.", "solution1": "peče ga ceo.", "label": 0, "example_id": "a1"}],
         [(["seče ga.", "peče ga ceo."], [0])], "global_piqa_nonparallel_cloze_srp_latn_torl", "srp_latn_torl"),
    Case("global_piqa_parallel", "gl", "test",
         [{"prompt": "Para abrir a porta,", "solution0": "a", "solution1": "b", "solution2": "c", "solution3": "d", "label": 3}],
         [(["a", "b", "c", "d"], [3])], "global_piqa_parallel_cloze_glg_latn", "glg_latn"),
    Case("copa", "et", "test",
         [_COPA | {"question": "cause", "label": 0, "idx": 0}, _COPA | {"question": "effect", "label": 1, "idx": 1}],
         [(["ta oli haige.", "sadas vihma."], [0]), (["ta oli haige.", "sadas vihma."], [1])], "xcopa_et", "et"),
    Case("dialect_copa", "ckm", "val",
         [{"premise": "Ona je pala.", "choice1": "Bilo je sklisko.", "choice2": "Spala je.", "question": "cause", "label": 0, "idx": 3, "changed": False}],
         [(["bilo je sklisko.", "spala je."], [0])]),
    Case("include", "eu", "test", [{"question": "Zein?", **_MCQ, "answer": 2, "domain": "Professional certification", "subject": "Physics"}],
         [(_OPTIONS, [2])], "include_base_44_basque_professional_certification", "Basque"),
    Case("eus_proficiency", "eu", "test", [_EXAM | {"id": 1, "answer": 0}], [(_EXAM["candidates"], [0])], "eus_proficiency"),
    Case("eus_trivia", "eu", "test", [{"id": 4, "question": "Nor?", "candidates": ["ni", "zu"], "answer": 1}], [(["ni", "zu"], [1])], "eus_trivia"),
    Case("eus_reading", "eu", "test", [{"id": 5, "context": "Testu bat.", "question": "Zer?", "candidates": ["hau", "hori", "hura"], "answer": 2}],
         [(["hau", "hori", "hura"], [2])], "eus_reading"),
    Case("eus_exams", "eu", "test", [_EXAM | {"id": 1, "answer": 3}], [(_EXAM["candidates"], [3])], "eus_exams_eu_ejadministrari", "eu_ejadministrari"),
    Case("nrk_quiz_qa", "nn", "test", [{"id": "q1", "question": "Kvar?", "choices": _letters(_CITIES), "answer": "C"}],
         [(_CITIES, [2])], "nrk_quiz_qa_nno_p0", "nn"),
    Case("norcommonsenseqa", "nb", "train", [{"id": "q1", "question": "Hvor?", "choices": _letters([*_CITIES, "Bodø", "Voss"]), "answer": "B"}],
         [([*_CITIES, "Bodø", "Voss"], [1])], "norcommonsenseqa_nob_p0", "nb"),
    Case("noropenbookqa", "nn", "test",
         [{"id": "1", "fact": "Is er kald.", "question_stem": "Is kjennest", "choices": _letters(["varm", "kald"]), "answer": "B"},
          {"id": "2", "fact": "", "question_stem": "Is", "choices": _letters(["varm", "kald"]), "answer": "B"}],
         [(["varm", "kald"], [1])], "noropenbookqa_nno_p0", "nn"),
    Case("nortruthfulqa_mc", "nb", "validation",
         [{"id": 1, "category": "Vane", "question": "Hva skjer?", "mc1_targets": {"choices": ["Ingenting.", "Alt."], "labels": [1, 0]}}],
         [(["Ingenting.", "Alt."], [0])], "nortruthfulqa_mc_nob_p0", "nb"),
    Case("ncb", "nb", "train", [{"correct": "Når du kommer, spiser vi.", "wrong": "Når du kommer spiser vi."}],
         [(["Når du kommer, spiser vi.", "Når du kommer spiser vi."], [0])], "ncb"),
    Case("noridiom", "nn", "test",
         [{"idiom_start": "Å sjå raudt", "idiom": "x", "accepted_completions": ["for seg", "her"], "language": "nno"},
          {"idiom_start": "Å se rødt", "idiom": "x", "accepted_completions": ["her"], "language": "nob"}],
         [(["for seg", "her"], [])]),
    Case("afrimmlu", "yo", "test", [{"subject": "geography", "question": "Níbo?", "choices": "['a', 'b', 'c', 'd']", "answer": "D"}],
         [(["a", "b", "c", "d"], [3])], "afrimmlu_direct_yor_prompt_1", "yor"),
    Case("afrixnli", "en", "test", [{"premise": "Ann sleeps.", "hypothesis": "Ann is awake.", "label": 2}], [(_ANSWERS, [2])], "afrixnli_eng_prompt_1", "eng"),
    Case("afrimgsm", "ha", "test", [{"question": "Biyu da uku?", "answer": None, "answer_number": 5, "equation_solution": None}],
         [(["5"], [])], "afrimgsm_hau_prompt_1", "hau"),
    Case("global_mmlu_lite", "ar", "test",
         [{"sample_id": "s/1", "subject": "law", "question": "كم؟", **_MCQ, "answer": "B", "cultural_sensitivity_label": "CS", "subject_category": "Other"}],
         [(_OPTIONS, [1])], "global_mmlu_ar_other", "ar"),
    Case("arabic_mmlu", "ar", "test",
         [{"ID": 1, "Subject": "Law", "Level": None, "Country": None, "Context": None, "Question": "كم؟", "Option 1": "أ", "Option 2": "ب", "Option 3": "ج", "Option 4": None,
           "Option 5": None, "Answer Key": "C"}],
         [(["أ", "ب", "ج"], [2])], "arabicmmlu_driving_test", "Driving Test"),
    Case("arab_culture", "ar", "test",
         [{"first_statement": "في العيد", "country": "Jordan", "region": "Levant", "should_discard": "No", "answer_key": {"english_answer_key": "B", "arabic_answer_key": "ب"},
           "options": {"text": ["أ", "ب", "ج"], "english_keys": ["A", "B", "C"], "arabic_keys": ["أ", "ب", "ج"]}},
          {"first_statement": "غلط", "country": "Jordan", "region": "Levant", "should_discard": "Yes", "answer_key": {"english_answer_key": "A", "arabic_answer_key": "أ"},
           "options": {"text": ["أ", "ب", "ج"], "english_keys": ["A", "B", "C"], "arabic_keys": ["أ", "ب", "ج"]}}],
         [(["أ", "ب", "ج"], [1])], None, "Jordan"),
    Case("oz_eval", "sr", "test", [{"question": "Ko?", "choices": ["a", "b", "c", "d", "e"], "answer": "E"}], [(list("abcde"), [4])]),
    Case("mgsm", "gl", "test", [{"question": "Dous e tres?", "answer": None, "answer_number": 5, "equation_solution": None}], [(["5"], [])], "mgsm_direct_gl"),
    Case("mgsm", "es", "test", [{"question": "¿Mil y dos?", "number": "1,002"}], [(["1,002"], [])]),
    Case("arc", "ca", "test", [{"id": "M1", "question": "Què és?", "choices": {"text": ["foc", "gel"], "label": ["1", "2"]}, "answerKey": "2"}],
         [(["foc", "gel"], [1])], "arc_ca_easy", "ARC-Easy"),
    Case("piqa", "eu", "validation", [{"goal": "Ura berotu", "sol1": "sutan", "sol2": "izotzetan", "label": 0}], [(["sutan", "izotzetan"], [0])], "piqa_eu"),
    Case("siqa", "ca", "validation",
         [{"context": "La Ona plora.", "question": "Per què?", "answerA": "riu", "answerB": "està trista", "answerC": "dorm", "label": "2"}],
         [(["riu", "està trista", "dorm"], [1])], "siqa_ca"),
    Case("icelandic_winogrande", "is", "train",
         [{"qID": "1", "sentence": "Bikarinn passar ekki í töskuna því _ er of stór.", "option1": "bikarinn", "option2": "taskan", "answer": "1"}],
         [(["bikarinn", "taskan"], [0])], "icelandic_winogrande"),
    Case("multi_wiki_qa", "ast", "train",
         [{"id": "1", "title": "Uviéu", "context": "Uviéu ye una ciudá.", "question": "¿Qué ye Uviéu?", "answers": {"text": ["una ciudá"], "answer_start": [9]}}],
         [(["una ciudá"], [])]),
]  # fmt: skip
