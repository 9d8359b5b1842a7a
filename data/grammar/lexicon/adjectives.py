"""Adjectives of the lexicon."""

from .entries import Adjective, parse_kinds


def _adjective(line: str) -> Adjective:
    en, de, rank, kinds = line.split()
    return Adjective(en, de, int(rank), parse_kinds(kinds))


_SOLID = "thing+big+clothes+surface+device+vehicle"
# english german rank kinds
ADJECTIVES = [
    _adjective(line.replace("SOLID", _SOLID))
    for line in """
old alt 2 person+animal+room+text+art+tree+SOLID
small klein 1 person+animal+room+tree+SOLID
new neu 2 text+art+room+SOLID
young jung 2 person+animal
big groß 1 person+animal+room+tree+SOLID
beautiful schön 0 person+animal+room+text+art+tree+water+ground+SOLID
red rot 4 SOLID
good gut 0 person+text+art+food+drink
cold kalt 3 food+drink+water
green grün 4 SOLID
friendly freundlich 3 person+animal+name
black schwarz 4 animal+SOLID
tired müde 3 person+animal+name
white weiß 4 animal+SOLID
long lang 1 text+water+ground
happy glücklich 3 person+animal+name
blue blau 4 SOLID
sick krank 3 person+animal+name
short kurz 1 text+ground
fresh frisch 2 food+drink
rich reich 3 person+name
hungry hungrig 3 person+animal+name
heavy schwer 1 thing+open+surface
sad traurig 3 person+text+art+name
clever klug 3 person+animal+name
strong stark 1 person+animal+name
hot heiß 3 food+drink
poor arm 0 person
cheap billig 0 thing+clothes+device+vehicle+food
ugly hässlich 0 animal+art+room+SOLID
dirty schmutzig 3 clothes+open+surface+vehicle+room+animal
famous berühmt 0 person+text+art
lazy faul 3 person+animal+name
clean sauber 3 clothes+open+surface+vehicle+room
strange seltsam 0 person+text+art+animal
important wichtig 0 person+text
empty leer 3 room+open+vehicle
quiet ruhig 3 person+animal+room+area
round rund 4 surface+thing
wild wild 4 animal+area
""".strip().splitlines()
]
