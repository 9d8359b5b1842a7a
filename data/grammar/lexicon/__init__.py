"""The words of the embedded grammar: English beside German, with all that inflection must know.

An English form never has two readings that German tells apart (no verb whose past is its base form
is put into the past; "you" is always "du"; "know" is "wissen"), so that German is a function of English.
Earlier entries of a table are drawn more often. Each part of speech has a module; here they come together.
"""

from .adjectives import ADJECTIVES
from .entries import Adjective, Noun, Preposition, Verb
from .function_words import CONJUNCTIONS, DEGREES, DETERMINERS, MANNERS, MODALS, QUESTIONS, WORDS_BEFORE_VERB
from .nouns import NOUNS
from .prepositions import DIRECTIONS, FOR, FROM, PLACES, TARGETS, WITH, WITHOUT
from .times import ANY_DAY, COMING_DAY, DAY_PARTS, MONTHS, PAST_DAY, SEASONS, WEEKDAYS
from .verbs import BE, VERBS, WEATHER

__all__ = [
    "ADJECTIVES",
    "ANY_DAY",
    "BE",
    "COMING_DAY",
    "CONJUNCTIONS",
    "DAY_PARTS",
    "DEGREES",
    "DETERMINERS",
    "DIRECTIONS",
    "FOR",
    "FROM",
    "MANNERS",
    "MODALS",
    "MONTHS",
    "NOUNS",
    "PAST_DAY",
    "PLACES",
    "QUESTIONS",
    "SEASONS",
    "TARGETS",
    "VERBS",
    "WEATHER",
    "WEEKDAYS",
    "WITH",
    "WITHOUT",
    "WORDS_BEFORE_VERB",
    "Adjective",
    "Noun",
    "Preposition",
    "Verb",
]
