"""Responses to multiple choice in words, with the letter that a reader finds in each; written before their parser.

A text has placeholders: @L and @O are the letter and text of the option that it means, @W, @P and @V, @Q those of two
others, @l is @L in lower case, ⏎ ends a line. Its label is "=" (a reader finds @L) or "-" (no answer). TEMPLATES are
filled with the phrases of a language, ADVERSARIAL texts are the language's own: their articles, conjunctions and
prepositions look like letters. Each text has five fillings with other options and other letters.

Half of the templates, by the hash of their text, were opened only when the parser was complete (`is_closed`).
"""

import hashlib
import re
from dataclasses import dataclass

FILLINGS = ((0, 1, 2), (3, 0, 1), (2, 3, 0), (4, 0, 1), (1, 2, 0))  # indices of @L, @W and @V in the five option lists

# failure mode: (label, template); phrases of the language in { }
TEMPLATES = {
    "cue": [
        "= {cue}: @L", "= {why} ⏎ ⏎ {cue}: @L", "= {cue}: @L ⏎ ⏎ {why}", "= {why} {why2} ⏎ {cue}: @L.",
        "= {final}: @L", "= {cue}: ⏎ @L", "= {why} ⏎ ⏎ {cue} ⏎ ⏎ @L", "= {cue} - @L", "= {cue}: @L, {because} {why}",
    ],
    "markup": [
        "= **{cue}:** @L", "= **{cue}: @L**", "= {why} ⏎ ⏎ **{final}: @L) @O**", "= {cue}: \\boxed{@L}", "= $\\boxed{\\text{@L}}$",
        "= {why} ⏎ {cue}: `@L`", "= ### {cue} ⏎ (@L)", "= {cue}: [@L]",
    ],
    "bare": ["= @L", "= (@L)", "= **@L**", "= @L.", "= @L)", "= @L ⏎ ⏎ {why}", "= {why} ⏎ ⏎ **@L**"],
    "sentence": [
        "= {is} @L.", "= {isopt} @L.", "= {why} {so} @L.", "= {think} @L.", "= {optis} @L: @O", "= {right}", "= {is} **@L. @O**.",
        "= {why2} {is} @L) @O, {because} {why}",
    ],
    "text": ["= @O", "= @L. @O", "= {cue}: @L. @O", "= {cue}: @O", "= @L) @O ⏎ ⏎ {why}"],
    "lower case": ["= {cue}: @l)", "= {cue}: (@l) @O"],
    "not this one": ["= {no} ⏎ {cue}: @L", "= {no} {right}", "= {but} ⏎ ⏎ {cue}: @L", "- {notis}", "- {no} {notis}"],
    "correction": ["= {cue}: @W ⏎ ⏎ {wait} ⏎ ⏎ {cue}: @L", "= {is} @W. {wait} {is} @L."],
    "several": ["- {cue}: @W {or} @L", "- {cue}: @W, @L", "- {unsure}", "- {cue}: @W/@L", "- @W ⏎ @L", "- {cue}: @W {and} @L"],
    "echo": [
        "- {ask}", "= {ask} ⏎ ⏎ {cue}: @L", "= @W. @P ⏎ @L. @O ⏎ @V. @Q ⏎ ⏎ {cue}: @L", "- @W. @P ⏎ @L. @O ⏎ @V. @Q", "- {cue}:",
        "= {cue}: @W ⏎ ⏎ {question} ⏎ {cue}: @L",
    ],
    "no answer": ["- {none}", "- {refusal}", "- {cue}: {none}", "- {why} {why2}", "- {hyp}", "- {cue}: F", "- {refusal} {why}", "- {cue}: X"],
    "other language": ["= Answer: @L", "= {why} ⏎ ⏎ The correct answer is @L."],
    "reasoning": [
        "= 1. @P: {no} ⏎ 2. @O: {why} ⏎ ⏎ {cue}: @L", "= A) {why} ⏎ B) {why2} ⏎ C) {why} ⏎ ⏎ {cue}: @L", "- A) {why} ⏎ B) {why2} ⏎ C) {why}",
        "= {hyp} {no} ⏎ {so} @L.",
    ],
}  # fmt: skip

PHRASES = {
    "gl": {
        "cue": "Resposta", "final": "Resposta final", "is": "A resposta correcta é", "isopt": "A resposta é a opción",
        "so": "Polo tanto, a resposta correcta é", "think": "Creo que a resposta é a", "optis": "A opción correcta é",
        "right": "A opción @L é a correcta.", "why": "O texto di que choveu toda a semana.", "why2": "A xente quedou na casa.",
        "no": "A opción @W non é correcta porque o texto non o di.", "but": "Non é @W, senón @L.", "wait": "Agarda, equivoqueime.",
        "or": "ou", "and": "e", "unsure": "Podería ser @W ou @L, pero non se pode saber.", "none": "Ningunha das opcións é correcta.",
        "refusal": "Síntoo, pero non podo responder a esta pregunta.", "because": "porque", "question": "Pregunta: Onde chove máis?",
        "ask": "Remata cunha última liña coa letra da opción correcta, así: Resposta: X", "notis": "A resposta non é @W.",
        "hyp": "Moita xente pensaría que a resposta é @W, pero o texto di outra cousa.",
    },
    "ca": {
        "cue": "Resposta", "final": "Resposta final", "is": "La resposta correcta és", "isopt": "La resposta és l'opció",
        "so": "Per tant, la resposta correcta és", "think": "Crec que la resposta és la", "optis": "L'opció correcta és",
        "right": "L'opció @L és la correcta.", "why": "El text diu que va ploure tota la setmana.", "why2": "A la vila tothom es va quedar a casa.",
        "no": "L'opció @W no és correcta perquè el text no ho diu.", "but": "No és @W, sinó @L.", "wait": "Espera, m'he equivocat.",
        "or": "o", "and": "i", "unsure": "Podria ser @W o @L, però no es pot saber.", "none": "Cap de les opcions no és correcta.",
        "refusal": "Ho sento, però no puc respondre aquesta pregunta.", "because": "perquè", "question": "Pregunta: On plou més?",
        "ask": "Acaba amb una última línia amb la lletra de l'opció correcta, així: Resposta: X", "notis": "La resposta no és @W.",
        "hyp": "Molta gent pensaria que la resposta és @W, però el text diu una altra cosa.",
    },
    "es": {
        "cue": "Respuesta", "final": "Respuesta final", "is": "La respuesta correcta es", "isopt": "La respuesta es la opción",
        "so": "Por lo tanto, la respuesta correcta es", "think": "Creo que la respuesta es la", "optis": "La opción correcta es",
        "right": "La opción @L es la correcta.", "why": "El texto dice que llovió toda la semana.", "why2": "A la gente no le gustó.",
        "no": "La opción @W no es correcta porque el texto no lo dice.", "but": "No es @W, sino @L.", "wait": "Espera, me he equivocado.",
        "or": "o", "and": "y", "unsure": "Podría ser @W o @L, pero no se puede saber.", "none": "Ninguna de las opciones es correcta.",
        "refusal": "Lo siento, pero no puedo responder a esta pregunta.", "because": "porque", "question": "Pregunta: ¿Dónde llueve más?",
        "ask": "Termina con una última línea con la letra de la opción correcta, así: Respuesta: X", "notis": "La respuesta no es @W.",
        "hyp": "Mucha gente pensaría que la respuesta es @W, pero el texto dice otra cosa.",
    },
    "pt": {
        "cue": "Resposta", "final": "Resposta final", "is": "A resposta correta é", "isopt": "A resposta é a opção",
        "so": "Portanto, a resposta correta é", "think": "Acho que a resposta é a", "optis": "A alternativa correta é",
        "right": "A opção @L é a correta.", "why": "O texto diz que choveu a semana toda.", "why2": "A gente ficou em casa.",
        "no": "A opção @W não está correta porque o texto não o diz.", "but": "Não é @W, mas sim @L.", "wait": "Espera, enganei-me.",
        "or": "ou", "and": "e", "unsure": "Pode ser @W ou @L, mas não se pode saber.", "none": "Nenhuma das opções está correta.",
        "refusal": "Lamento, mas não posso responder a esta pergunta.", "because": "porque", "question": "Pergunta: Onde chove mais?",
        "ask": "Termine com uma última linha com a letra da opção correta, assim: Resposta: X", "notis": "A resposta não é @W.",
        "hyp": "Muita gente pensaria que a resposta é @W, mas o texto diz outra coisa.",
    },
    "eu": {
        "cue": "Erantzuna", "final": "Azken erantzuna", "is": "Erantzun zuzena hau da:", "isopt": "Erantzuna aukera hau da:",
        "so": "Beraz, erantzun zuzena hau da:", "think": "Nire ustez, erantzuna hau da:", "optis": "Aukera zuzena hau da:",
        "right": "@L da erantzun zuzena.", "why": "Testuak dio aste osoan euria egin zuela.", "why2": "Jendea etxean geratu zen.",
        "no": "@W aukera ez da zuzena, testuak ez duelako esaten.", "but": "Ez da @W, @L baizik.", "wait": "Itxaron, oker nago.",
        "or": "edo", "and": "eta", "unsure": "@W edo @L izan daiteke, baina ezin da jakin.", "none": "Aukeretako bat ere ez da zuzena.",
        "refusal": "Barkatu, baina ezin diot galdera honi erantzun.", "because": "izan ere,", "question": "Galdera: Non egiten du euri gehien?",
        "ask": "Amaitu azken lerro batekin, aukera zuzenaren letrarekin, honela: Erantzuna: X", "notis": "Erantzuna ez da @W.",
        "hyp": "Jende askok pentsatuko luke erantzuna @W dela, baina testuak beste gauza bat dio.",
    },
    "sr": {
        "cue": "Odgovor", "final": "Konačan odgovor", "is": "Tačan odgovor je", "isopt": "Odgovor je opcija",
        "so": "Dakle, tačan odgovor je", "think": "Mislim da je odgovor", "optis": "Tačna opcija je",
        "right": "Opcija @L je tačna.", "why": "U tekstu piše da je kiša padala cele nedelje.", "why2": "A ljudi su ostali kod kuće.",
        "no": "Opcija @W nije tačna jer to ne piše u tekstu.", "but": "Nije @W, već @L.", "wait": "Čekaj, pogrešio sam.",
        "or": "ili", "and": "i", "unsure": "Može biti @W ili @L, ali to se ne može znati.", "none": "Nijedna od opcija nije tačna.",
        "refusal": "Žao mi je, ali ne mogu da odgovorim na ovo pitanje.", "because": "jer", "question": "Pitanje: Gde najviše pada kiša?",
        "ask": "Završi poslednjim redom sa slovom tačne opcije, ovako: Odgovor: X", "notis": "Odgovor nije @W.",
        "hyp": "Mnogi bi pomislili da je odgovor @W, ali tekst kaže drugo.",
    },
    "sr-Cyrl": {
        "cue": "Одговор", "final": "Коначан одговор", "is": "Тачан одговор је", "isopt": "Одговор је опција",
        "so": "Дакле, тачан одговор је", "think": "Мислим да је одговор", "optis": "Тачна опција је",
        "right": "Опција @L је тачна.", "why": "У тексту пише да је киша падала целе недеље.", "why2": "А људи су остали код куће.",
        "no": "Опција @W није тачна јер то не пише у тексту.", "but": "Није @W, већ @L.", "wait": "Чекај, погрешио сам.",
        "or": "или", "and": "и", "unsure": "Може бити @W или @L, али то се не може знати.", "none": "Ниједна од опција није тачна.",
        "refusal": "Жао ми је, али не могу да одговорим на ово питање.", "because": "јер", "question": "Питање: Где највише пада киша?",
        "ask": "Заврши последњим редом са словом тачне опције, овако: Одговор: X", "notis": "Одговор није @W.",
        "hyp": "Многи би помислили да је одговор @W, али текст каже друго.",
    },
    "ar": {
        "cue": "الجواب", "final": "الجواب النهائي", "is": "الجواب الصحيح هو", "isopt": "الجواب هو الخيار",
        "so": "لذلك، الإجابة الصحيحة هي", "think": "أعتقد أن الجواب هو", "optis": "الخيار الصحيح هو",
        "right": "الخيار @L هو الصحيح.", "why": "يقول النص إن المطر هطل طوال الأسبوع.", "why2": "وبقي الناس في بيوتهم.",
        "no": "الخيار @W غير صحيح لأن النص لا يذكره.", "but": "ليس @W بل @L.", "wait": "انتظر، لقد أخطأت.",
        "or": "أو", "and": "و", "unsure": "قد يكون @W أو @L، ولكن لا يمكن معرفة ذلك.", "none": "لا شيء من الخيارات صحيح.",
        "refusal": "عذرًا، لا أستطيع الإجابة عن هذا السؤال.", "because": "لأن", "question": "السؤال: أين يهطل المطر أكثر؟",
        "ask": "اختم بسطر أخير فيه حرف الخيار الصحيح هكذا: الجواب: X", "notis": "الجواب ليس @W.",
        "hyp": "قد يظن كثيرون أن الجواب هو @W، لكن النص يقول شيئًا آخر.",
    },
    "ka": {
        "cue": "პასუხი", "final": "საბოლოო პასუხი", "is": "სწორი პასუხია", "isopt": "პასუხია ვარიანტი",
        "so": "ამიტომ, სწორი პასუხია", "think": "ვფიქრობ, პასუხია", "optis": "სწორი ვარიანტია",
        "right": "სწორია ვარიანტი @L.", "why": "ტექსტში წერია, რომ მთელი კვირა წვიმდა.", "why2": "ხალხი სახლში დარჩა.",
        "no": "ვარიანტი @W არ არის სწორი, რადგან ტექსტში ეს არ წერია.", "but": "არა @W, არამედ @L.", "wait": "მოიცა, შევცდი.",
        "or": "ან", "and": "და", "unsure": "შეიძლება იყოს @W ან @L, მაგრამ ამის ცოდნა შეუძლებელია.", "none": "არც ერთი ვარიანტი არ არის სწორი.",
        "refusal": "ბოდიში, ამ კითხვაზე პასუხი არ შემიძლია.", "because": "რადგან", "question": "კითხვა: სად წვიმს ყველაზე მეტად?",
        "ask": "დაასრულე ბოლო ხაზით, სადაც სწორი ვარიანტის ასოა, ასე: პასუხი: X", "notis": "პასუხი არ არის @W.",
        "hyp": "ბევრი იფიქრებდა, რომ პასუხია @W, მაგრამ ტექსტში სხვა რამ წერია.",
    },
    "en": {
        "cue": "Answer", "final": "Final answer", "is": "The correct answer is", "isopt": "The answer is option",
        "so": "Therefore, the correct answer is", "think": "I think the answer is", "optis": "The correct option is",
        "right": "Option @L is correct.", "why": "The text says that it rained all week.", "why2": "A lot of people stayed at home.",
        "no": "Option @W is not correct because the text does not say so.", "but": "It is not @W but @L.", "wait": "Wait, I made a mistake.",
        "or": "or", "and": "and", "unsure": "It could be @W or @L, but there is no way to know.", "none": "None of the options is correct.",
        "refusal": "I'm sorry, but I cannot answer this question.", "because": "because", "question": "Question: Where does it rain most?",
        "ask": "End with a last line with the letter of the correct option, like this: Answer: X", "notis": "The answer is not @W.",
        "hyp": "Many people would think that the answer is @W, but the text says otherwise.",
    },
}  # fmt: skip

# ten texts per language, each with five fillings
ADVERSARIAL = {
    "gl": [
        "- A verdade é que non o sei.", "- Resposta: A xente do texto non o di.", "- A resposta é a que está no texto.", "- Resposta: a seguinte",
        "- A resposta correcta é a primeira ou a segunda.", "- E a resposta?", "- O texto fala da choiva. A resposta está nel: O vento, A néboa.",
        "= A primeira opción non vale. O texto di a segunda. ⏎ Resposta: @L", "- A resposta é: A meu ver, ningunha.", "- Resposta: E se non chove?",
    ],
    "ca": [
        "- A mi em sembla que no es pot saber.", "- Resposta: A la vila no ho diuen.", "- La resposta és a la primera frase.", "- Resposta: a continuació",
        "- La resposta és: E l millor seria preguntar-ho.", "- I la resposta?", "- Resposta: D'acord, no ho sé.", "- La resposta correcta és a dalt o a baix.",
        "= A la primera opció li falta alguna cosa. I a la segona també. ⏎ Resposta: @L", "- Resposta: A veure, C'est difícil.",
    ],
    "es": [
        "- A mí me parece que no se puede saber.", "- Respuesta: A la gente no le importa.", "- La respuesta es a la vez fácil y difícil.",
        "- Respuesta: a continuación", "- La respuesta correcta es: A ver, no lo sé.", "- ¿Y la respuesta?", "- Respuesta: E incluso así, nada.",
        "- La respuesta correcta está en el texto: A Coruña, O Grove.", "= A lo mejor llueve. O no. Y punto. ⏎ Respuesta: @L", "- Respuesta: De acuerdo, no lo sé.",
    ],
    "pt": [
        "- A verdade é que não sei.", "- Resposta: A gente do texto não o diz.", "- A resposta é a que está no texto.", "- Resposta: a seguir",
        "- A resposta correta é a primeira ou a segunda.", "- E a resposta?", "- Resposta: E se não chover?", "- A resposta é: A meu ver, nenhuma.",
        "= A primeira opção não serve. O texto diz a segunda. E pronto. ⏎ Resposta: @L", "- Resposta: D. Maria não o diz.",
    ],
    "eu": [
        "- Ez dakit.", "- Erantzuna: A ze galdera!", "- Erantzuna hau da: testuan dagoena.", "- Erantzuna: a zer nolako euria", "- Eta erantzuna?",
        "- Erantzun zuzena hau da: A eta B artekoa.", "- Erantzuna: E, ez dakit.", "= A! Orain ulertzen dut. ⏎ Erantzuna: @L", "- Erantzuna: ADN",
        "- Erantzuna: C. Tangana abeslaria da.",
    ],
    "sr": [
        "- A šta ako ne pada kiša?", "- Odgovor: A ko to zna?", "- Odgovor: a to ne piše", "- Odgovor je: A možda i nije.", "- I odgovor?",
        "- Tačan odgovor je a priori nepoznat.", "- Odgovor: I jedno i drugo.", "- Odgovor: E, to ne znam.", "= A ljudi su ostali kod kuće. I to je sve. ⏎ Odgovor: @L",
        "- Odgovor: O tome tekst ne govori.",
    ],
    "sr-Cyrl": [
        "- А шта ако не пада киша?", "- Одговор: А ко то зна?", "- Одговор: а то не пише", "- Одговор је: А можда и није.", "- И одговор?",
        "- Тачан одговор је а приори непознат.", "- Одговор: И једно и друго.", "- Одговор: Е, то не знам.", "= А људи су остали код куће. И то је све. ⏎ Одговор: @L",
        "- Одговор: С обзиром на текст, не знам.",
    ],
    "ar": [
        "- أ هذا سؤال؟", "- الجواب: أ تعرفه أنت؟", "- الجواب: ب النص لا يذكره", "- الجواب: لا أعرف", "- و الجواب؟", "- الجواب هو: د. أحمد لا يقول ذلك.",
        "- الجواب الصحيح هو ما في النص.", "- الجواب: A ثم ماذا؟", "= أ هذا سؤال سهل؟ نعم. ⏎ الجواب: @L", "- الجواب: A و B كلاهما",
    ],
    "ka": [
        "- ა, არ ვიცი.", "- პასუხი: ა რა კითხვაა!", "- პასუხი: აქ არ წერია", "- პასუხია: ა ნუ მკითხავ.", "- და პასუხი?", "- სწორი პასუხია ის, რაც ტექსტშია.",
        "- პასუხი: A რატომ?", "- პასუხი: ე, არ ვიცი.", "= ა, გასაგებია. ⏎ პასუხი: @L", "- პასუხი: A და B ერთად",
    ],
    "en": [
        "- A good question.", "- Answer: A person would need the text.", "- The answer is a matter of taste.", "- Answer: a week of rain",
        "- The correct answer is: A lot of rain.", "- I don't think the answer is @W.", "- Answer: I do not know.", "- If the answer is @W, the text is wrong.",
        "= A lot of people stayed at home. I would, too. ⏎ Answer: @L", "- Answer: Depends.",
    ],
}  # fmt: skip

_PLACES = ("Lugo", "A Coruña", "Ourense", "Vigo", "O Grove")
OPTIONS = {
    "gl": [("o vento", "a néboa", "a choiva", "o sol"), _PLACES, ("un libro", "unha carta", "A Bíblia", "nada"),
           ("dous", "tres", "catro", "cinco", "seis"), ("si", "non", "quizais")],
    "ca": [("el vent", "la boira", "la pluja", "el sol"), ("Lleida", "A Coruña", "Girona", "Vic"), ("un llibre", "una carta", "A Bíblia", "res"),
           ("dos", "tres", "quatre", "cinc", "sis"), ("sí", "no", "potser")],
    "es": [("el viento", "la niebla", "la lluvia", "el sol"), _PLACES, ("un libro", "una carta", "el periódico", "nada"),
           ("dos", "tres", "cuatro", "cinco", "seis"), ("sí", "no", "quizás")],
    "pt": [("o vento", "a névoa", "a chuva", "o sol"), ("Porto", "A Guarda", "Braga", "O Grove"), ("um livro", "uma carta", "A Bíblia", "nada"),
           ("dois", "três", "quatro", "cinco", "seis"), ("sim", "não", "talvez")],
    "eu": [("haizea", "lainoa", "euria", "eguzkia"), ("Bilbo", "Donostia", "Gasteiz", "Iruñea"), ("liburu bat", "gutun bat", "egunkaria", "ezer ez"),
           ("bi", "hiru", "lau", "bost", "sei"), ("bai", "ez", "agian")],
    "sr": [("vetar", "magla", "kiša", "sunce"), ("Niš", "Beograd", "Subotica", "Užice"), ("knjiga", "pismo", "novine", "ništa"),
           ("dva", "tri", "četiri", "pet", "šest"), ("da", "ne", "možda")],
    "sr-Cyrl": [("ветар", "магла", "киша", "сунце"), ("Ниш", "Београд", "Суботица", "Ужице"), ("књига", "писмо", "новине", "ништа"),
                ("два", "три", "четири", "пет", "шест"), ("да", "не", "можда")],
    "ar": [("الريح", "الضباب", "المطر", "الشمس"), ("عمّان", "بغداد", "تونس", "الرباط"), ("كتاب", "رسالة", "جريدة", "لا شيء"),
           ("اثنان", "ثلاثة", "أربعة", "خمسة", "ستة"), ("نعم", "لا", "ربما")],
    "ka": [("ქარი", "ნისლი", "წვიმა", "მზე"), ("თბილისი", "ბათუმი", "ქუთაისი", "ფოთი"), ("წიგნი", "წერილი", "გაზეთი", "არაფერი"),
           ("ორი", "სამი", "ოთხი", "ხუთი", "ექვსი"), ("დიახ", "არა", "შესაძლოა")],
    "en": [("the wind", "the fog", "the rain", "the sun"), ("Leeds", "A Coruña", "York", "Bath"), ("a book", "a letter", "the news", "nothing"),
           ("two", "three", "four", "five", "six"), ("yes", "no", "maybe")],
}  # fmt: skip


@dataclass(frozen=True)
class Response:
    """A response, its label (index of the option, or None) and how it was written."""

    mode: str
    options: tuple[str, ...]
    text: str
    label: int | None
    is_closed: bool


def responses(language: str) -> list[Response]:
    """Return the labeled responses of a language."""
    found = []
    for mode, templates in TEMPLATES.items():
        for template in templates:
            is_closed = hashlib.sha256(template.encode()).digest()[0] % 2 == 1
            text = template
            for name, phrase in PHRASES[language].items():
                text = text.replace(f"{{{name}}}", phrase)
            found += _filled(language, mode, text, is_closed)
    return found


def adversarial(language: str) -> list[Response]:
    """Return the adversarial texts of a language."""
    return [row for text in ADVERSARIAL[language] for row in _filled(language, "adversarial", text, False)]


def _filled(language: str, mode: str, template: str, is_closed: bool) -> list[Response]:
    rows = []
    for options, indices in zip(OPTIONS[language], FILLINGS, strict=True):
        text = re.sub(" *⏎ ?", "\n", template[2:])
        for placeholder, name, index in zip("LWV", "OPQ", indices, strict=True):
            text = text.replace(f"@{placeholder}", "ABCDE"[index]).replace(f"@{name}", options[index])
        text = text.replace("@l", "abcde"[indices[0]])
        rows.append(Response(mode, options, text, indices[0] if template[0] == "=" else None, is_closed))
    return rows
