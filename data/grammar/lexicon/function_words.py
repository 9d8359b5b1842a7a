"""Determiners and modal verbs with their forms; adverbs and conjunctions, which are uninflected."""

# english (singular/plural) -> (german stem, declension of the article, of the adjective after it)
DETERMINERS = {
    "the": ("d", "der", "weak"),
    "a": ("ein", "ein", "mixed"),
    "my": ("mein", "ein", "mixed"),
    "his": ("sein", "ein", "mixed"),
    "her": ("ihr", "ein", "mixed"),
    "our": ("unser", "ein", "mixed"),
    "your": ("dein", "ein", "mixed"),
    "their": ("ihr", "ein", "mixed"),
    "this": ("dies", "strong", "weak"),
    "no": ("kein", "ein", "mixed"),
    "every": ("jed", "strong", "weak"),
    "all": ("all", "strong", "weak"),
    "many": ("viel", "strong", "strong"),
    "some": ("einig", "strong", "strong"),
    "which": ("welch", "strong", "weak"),
    "whose": ("", "whose", "strong"),
    "": ("", "", "strong"),
}
MODALS = {  # english -> (ich, du, er, plural)
    "can": ("kann", "kannst", "kann", "können"),
    "must": ("muss", "musst", "muss", "müssen"),
    "want": ("will", "willst", "will", "wollen"),
    "will": ("werde", "wirst", "wird", "werden"),
    "should": ("soll", "sollst", "soll", "sollen"),
    "may": ("darf", "darfst", "darf", "dürfen"),
}
# (english, german) uninflected words
WORDS_BEFORE_VERB = [("often", "oft"), ("always", "immer"), ("never", "nie"), ("sometimes", "manchmal")]
MANNERS = [
    ("slowly", "langsam"),
    ("quickly", "schnell"),
    ("alone", "allein"),
    ("carefully", "vorsichtig"),
    ("quietly", "leise"),
    ("secretly", "heimlich"),
]
DEGREES = [("very", "sehr"), ("too", "zu"), ("quite", "ziemlich")]
CONJUNCTIONS = [
    ("because", "weil"),
    ("if", "wenn"),
    ("although", "obwohl"),
    ("while", "während"),
    ("before", "bevor"),
    ("as soon as", "sobald"),
    ("until", "bis"),
]
QUESTIONS = [("where", "wo"), ("when", "wann"), ("why", "warum"), ("how", "wie")]
