"""Lexicon of the embedded grammar: English words and their German translations, with their inflection.

An English form has only one German translation: verbs whose past equals their base form are not used in the
past, "you" is always "du", "know" is always "wissen". Earlier entries of a list are drawn more often.
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
