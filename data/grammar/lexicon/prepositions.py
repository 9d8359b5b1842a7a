"""Prepositions of the lexicon, grouped by their use."""

from .entries import Preposition, parse_kinds


def _preposition(line: str) -> Preposition:
    en, de, case, kinds = line.split()
    return Preposition(en.replace("_", " "), de, case, parse_kinds(kinds))


def _prepositions(table: str) -> list[Preposition]:
    return [_preposition(line) for line in table.strip().splitlines()]


PLACES = _prepositions("""
in in dat room
on auf dat surface+ground
behind hinter dat room+vehicle+tree
in in dat city
under unter dat surface+tree
beside neben dat room+vehicle+tree+edge
in_front_of vor dat room+vehicle
at an dat edge
""")
DIRECTIONS = _prepositions("""
to zu dat room+person
into in acc room
through durch acc area
to nach dat city
over über acc ground
around um acc water
""")
TARGETS = _prepositions("""
into in acc room
on auf acc surface
under unter acc surface
beside neben acc tree+vehicle
behind hinter acc room+tree
""")
WITH, WITHOUT, FROM, FOR = _prepositions("""
with mit dat clothes+text
without ohne acc clothes+text
from aus dat city
for für acc person
""")
