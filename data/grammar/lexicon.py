"""Lexicon of the embedded grammar: English words and their German translations, with their inflection.

An English form has only one German translation: verbs whose past equals their base form are not used in the
past, "you" is always "du", "know" is always "wissen". Earlier entries of a list are drawn more often.
"""

from typing import NamedTuple

# Types of the entries of the lexicon, one per part of speech.
#
# Kinds are the selectional classes of nouns: verbs and prepositions name the kinds that they allow, so that
# sentences make some sense.


class Noun(NamedTuple):
    """A noun; ``gender`` is "m", "f" or "n"; the plural of a mass noun or a name is ""."""

    en: str
    en_plural: str
    gender: str
    de: str
    de_plural: str
    kinds: frozenset[str]

    @property
    def weak(self) -> bool:
        """Whether the noun belongs to the n-declension: der Junge, den Jungen."""
        return "weak" in self.kinds


class Adjective(NamedTuple):
    """An adjective; of two, the one of lower ``rank`` comes first, and equal ranks are not combined."""

    en: str
    de: str
    rank: int
    kinds: frozenset[str]


class Preposition(NamedTuple):
    """A preposition with the case that it governs in German and the kinds of nouns that it allows."""

    en: str
    de: str
    case: str
    kinds: frozenset[str]


class Verb(NamedTuple):
    """A verb with its forms and its arguments."""

    en: str
    past: str
    particle: str
    """Movable English particle: picks him *up*."""
    relation: str
    """English preposition before the object: waits *for* him."""
    prefix: str
    """Separable German prefix."""
    de: str
    """German infinitive without the prefix."""
    er: str
    """German third person singular without the prefix."""
    participle: str
    """German past participle with the prefix."""
    sein: bool
    """Whether the German perfect is formed with "sein"."""
    frame: str
    """Its arguments: none, object, recipient (object and dative), direction, put (object and direction), be.

    Verbs with a complement clause: that, whether, zu.
    """
    case: str
    """Case of the German object."""
    de_relation: str
    """Preposition before the German object."""
    subjects: frozenset[str]
    """Kinds of nouns that the verb allows as subject."""
    objects: frozenset[str]
    """Kinds of nouns that the verb allows as object."""


def parse_kinds(text: str) -> frozenset[str]:
    """Parse the kinds of an entry, such as "room+big"."""
    return frozenset(text.split("+"))


# Adjectives of the lexicon.


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


# Determiners and modal verbs with their forms; adverbs and conjunctions, which are uninflected.


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


# Nouns and names of the lexicon.


def _noun(line: str) -> Noun:
    en, gender, de, plural, kinds = line.split()
    en, _, en_plural = en.partition("/")
    if plural == "-":
        return Noun(en, "", gender, de, "", parse_kinds(kinds))
    return Noun(en, en_plural or english_plural(en), gender, de, plural, parse_kinds(kinds))


def english_plural(noun: str) -> str:
    """Return the regular English plural: boxes, stories, dogs."""
    if noun.endswith(("s", "x", "ch", "sh")) or noun in ("potato", "tomato"):
        return noun + "es"
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


# english[/plural] gender german german-plural kinds
NOUNS = [
    _noun(line)
    for line in """
man/men m Mann Männer person
woman/women f Frau Frauen person
child/children n Kind Kinder person
dog m Hund Hunde animal
house n Haus Häuser room+big
book n Buch Bücher text+thing
teacher m Lehrer Lehrer person
girl n Mädchen Mädchen person
boy m Junge Jungen person+weak
cat f Katze Katzen animal
garden m Garten Gärten room+area+big
table m Tisch Tische surface+edge+big
letter m Brief Briefe text+thing
door f Tür Türen open+edge+big
mother f Mutter Mütter person
friend m Freund Freunde person
school f Schule Schulen room+big
car n Auto Autos vehicle+big
father m Vater Väter person
apple m Apfel Äpfel food
doctor m Arzt Ärzte person
sister f Schwester Schwestern person
window n Fenster Fenster open+edge+big
brother m Bruder Brüder person
bread n Brot - food+mass
water n Wasser - drink+mass
street f Straße Straßen ground+area+big
flower f Blume Blumen thing
student m Student Studenten person+weak
key m Schlüssel Schlüssel thing
bed n Bett Betten surface+big
kitchen f Küche Küchen room+big
horse n Pferd Pferde animal
newspaper f Zeitung Zeitungen text+thing
hat m Hut Hüte clothes+thing
picture n Bild Bilder art+thing
box f Kiste Kisten open+thing
neighbour m Nachbar Nachbarn person+weak
daughter f Tochter Töchter person
son m Sohn Söhne person
room n Zimmer Zimmer room+big
milk f Milch - drink+mass
coffee m Kaffee - drink+mass
chair m Stuhl Stühle surface+thing
town f Stadt Städte room+area+big
queen f Königin Königinnen person
king m König Könige person
bird m Vogel Vögel animal
lamp f Lampe Lampen device+thing
bag f Tasche Taschen open+thing
cup f Tasse Tassen thing
story f Geschichte Geschichten text
church f Kirche Kirchen room+big
shop m Laden Läden room+big
forest m Wald Wälder room+area+big
bottle f Flasche Flaschen open+thing
coat m Mantel Mäntel clothes+thing
train m Zug Züge vehicle+big
gift n Geschenk Geschenke thing
uncle m Onkel Onkel person
aunt f Tante Tanten person
guest m Gast Gäste person
song n Lied Lieder art
cake m Kuchen Kuchen food+thing
tea m Tee - drink+mass
ball m Ball Bälle thing
village n Dorf Dörfer room+area+big
park m Park Parks room+area+big
station m Bahnhof Bahnhöfe room+edge+big
bridge f Brücke Brücken ground+edge+big
grandmother f Großmutter Großmütter person
farmer m Bauer Bauern person+weak
knife/knives n Messer Messer thing
shirt n Hemd Hemden clothes+thing
dress n Kleid Kleider clothes+thing
jacket f Jacke Jacken clothes+thing
shoe m Schuh Schuhe clothes+thing
clock f Uhr Uhren device+thing
radio n Radio Radios device+thing
computer m Computer Computer device+thing
machine f Maschine Maschinen device+big
suitcase m Koffer Koffer open+thing
plate m Teller Teller thing
spoon m Löffel Löffel thing
poem n Gedicht Gedichte text
egg n Ei Eier food
soup f Suppe Suppen food
potato f Kartoffel Kartoffeln food
cheese m Käse - food+mass
meat n Fleisch - food+mass
wine m Wein - drink+mass
beer n Bier - drink+mass
hotel n Hotel Hotels room+big
office n Büro Büros room+big
hospital n Krankenhaus Krankenhäuser room+big
museum n Museum Museen room+big
theatre n Theater Theater room+big
castle n Schloss Schlösser room+big
cellar m Keller Keller room+big
factory f Fabrik Fabriken room+big
library f Bibliothek Bibliotheken room+big
mountain m Berg Berge ground+big
island f Insel Inseln ground+area+big
lake m See Seen edge+water+big
river m Fluss Flüsse edge+water+big
tree m Baum Bäume tree+big
ship n Schiff Schiffe vehicle+big
bicycle n Fahrrad Fahrräder thing+big
bus m Bus Busse vehicle+big
cow f Kuh Kühe animal
mouse/mice f Maus Mäuse animal
goat f Ziege Ziegen animal
duck f Ente Enten animal
bear m Bär Bären animal+weak
lion m Löwe Löwen animal+weak
pig n Schwein Schweine animal
judge m Richter Richter person
gardener m Gärtner Gärtner person
painter m Maler Maler person
singer m Sänger Sänger person
grandfather m Großvater Großväter person
nurse f Krankenschwester Krankenschwestern person
thief/thieves m Dieb Diebe person
baker m Bäcker Bäcker person
colleague m Kollege Kollegen person+weak
customer m Kunde Kunden person+weak
hunter m Jäger Jäger person
waitress f Kellnerin Kellnerinnen person
umbrella m Regenschirm Regenschirme thing
photo n Foto Fotos art+thing
sofa n Sofa Sofas surface+big
Anna f Anna - name
Peter m Peter - name
Maria f Maria - name
Paul m Paul - name
Lisa f Lisa - name
Thomas m Thomas - name
Clara f Clara - name
Martin m Martin - name
Berlin n Berlin - city
Vienna n Wien - city
Hamburg n Hamburg - city
Munich n München - city
Cologne n Köln - city
Zurich n Zürich - city
""".strip().splitlines()
]


# Prepositions of the lexicon, grouped by their use.


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


# Time adverbials, weekdays, months and seasons as (english, german); "|" separates linked chunks.


ANY_DAY = [("today", "heute"), ("now", "jetzt"), ("every|day", "jeden|Tag")]
PAST_DAY = [("yesterday", "gestern"), ("last|week", "letzte|Woche"), ("last|year", "letztes|Jahr")]
COMING_DAY = [("tomorrow", "morgen"), ("next|week", "nächste|Woche"), ("next|year", "nächstes|Jahr")]
DAY_PARTS = [("in the|morning", "am|Morgen"), ("in the|evening", "am|Abend"), ("at|night", "in der|Nacht")]
WEEKDAYS = [
    ("Monday", "Montag"),
    ("Tuesday", "Dienstag"),
    ("Wednesday", "Mittwoch"),
    ("Thursday", "Donnerstag"),
    ("Friday", "Freitag"),
    ("Saturday", "Samstag"),
    ("Sunday", "Sonntag"),
]
MONTHS = [
    ("January", "Januar"),
    ("February", "Februar"),
    ("March", "März"),
    ("April", "April"),
    ("May", "Mai"),
    ("June", "Juni"),
    ("July", "Juli"),
    ("August", "August"),
    ("September", "September"),
    ("October", "Oktober"),
    ("November", "November"),
    ("December", "Dezember"),
]
SEASONS = [("spring", "Frühling"), ("summer", "Sommer"), ("autumn", "Herbst"), ("winter", "Winter")]


# Verbs of the lexicon, with "be" and the weather verbs.


def _verb(line: str) -> Verb:
    english, past, german, er, participle, frame, case, subjects, objects = line.split()
    base, movable, particle = english.partition("+")
    en, _, relation = base.partition(":")
    prefix, _, de = german.rpartition("|")
    de, _, de_relation = de.partition(":")
    sein = participle.startswith("ist:")
    third = de.removesuffix("n").removesuffix("e") + "t" if er == "-" else er
    regular = f"{prefix}ge{third}"
    return Verb(
        en=en,
        past=past,
        particle=particle if movable else "",
        relation=relation,
        prefix=prefix,
        de=de,
        er=third,
        participle=regular if participle == "-" else participle.removeprefix("ist:"),
        sein=sein,
        frame=frame,
        case=case,
        de_relation=de_relation,
        subjects=parse_kinds(subjects),
        objects=parse_kinds(objects),
    )


# english[+particle][:relation] past [prefix|]german[:relation] er participle frame case subjects objects
# "-" as er or participle: regular (stem + t, ge + stem + t); "ist:" marks verbs with "sein" in the perfect
VERBS = [
    _verb(line)
    for line in """
see saw sehen sieht gesehen object acc person+animal person+animal+thing+big+art
sleep slept schlafen schläft geschlafen none - person+animal -
give gave geben gibt gegeben recipient acc person thing+food+animal
read read lesen liest gelesen object acc person text
buy bought kaufen - - object acc person thing+food+drink+clothes+vehicle+room
say said sagen - - that - person -
open opened auf|machen - - object acc person open
work worked arbeiten arbeitet gearbeitet none - person -
look:for looked suchen - - object acc person+animal person+animal+thing+clothes
help helped helfen hilft geholfen object dat person person+animal
go went gehen geht ist:gegangen direction - person -
eat ate essen isst gegessen object acc person+animal food
know knew wissen weiß gewusst that - person -
find found finden findet gefunden object acc person+animal person+animal+thing+clothes
call called an|rufen ruft angerufen object acc person person
wait:for waited warten:auf wartet gewartet object acc person+animal person+animal+vehicle
show showed zeigen - - recipient acc person thing+text+art+room
love loved lieben - - object acc person person+animal+art+food
drink drank trinken - getrunken object acc person+animal drink
close closed zu|machen - - object acc person open
believe believed glauben - - that - person -
get+up got auf|stehen steht ist:aufgestanden none - person+animal -
try tried versuchen - versucht zu - person+animal -
play:with played spielen:mit - - object dat person+animal person+animal+thing
write wrote schreiben - geschrieben recipient acc person text
drive drove fahren fährt ist:gefahren direction - person -
pick+up picked ab|holen - - object acc person person+thing
carry carried tragen trägt getragen put acc person thing+animal+food
laugh laughed lachen - - none - person -
visit visited besuchen - besucht object acc person person+room+city
invite invited ein|laden lädt eingeladen object acc person person
hear heard hören - - object acc person+animal person+animal+vehicle+art
sing sang singen - gesungen none - person -
hope hoped hoffen - - that - person -
think:of thought denken:an - gedacht object acc person person+animal+art+city
thank thanked danken - - object dat person person
turn+on turned ein|schalten schaltet eingeschaltet object acc person device
sell sold verkaufen - verkauft object acc person thing+food+clothes+animal
send sent schicken - - recipient acc person thing+text
ask asked fragen - - whether - person -
come+back came zurück|kommen - ist:zurückgekommen none - person+animal -
paint painted malen - - object acc person person+animal+big
wash washed waschen wäscht gewaschen object acc person clothes+vehicle+animal
listen:to listened zu|hören - - object dat person person
run ran laufen läuft ist:gelaufen direction - person+animal -
forget forgot vergessen vergisst vergessen object acc person text+thing+person
explain explained erklären - erklärt recipient acc person text+device+art
throw+away threw weg|werfen wirft weggeworfen object acc person thing+food+clothes
arrive arrived an|kommen - ist:angekommen none - person+vehicle -
bring brought bringen - gebracht recipient acc person thing+food+drink
place placed stellen - - put acc person thing+food+drink
talk:about talked sprechen:über spricht gesprochen object acc person person+text+art+room
promise promised versprechen verspricht versprochen zu - person -
turn+off turned aus|schalten schaltet ausgeschaltet object acc person device
repair repaired reparieren - repariert object acc person device+vehicle+open
dance danced tanzen - - none - person -
follow followed folgen - ist:gefolgt object dat person+animal person+animal+vehicle
travel traveled reisen reist ist:gereist direction - person -
cry cried weinen - - none - person -
dream:of dreamed träumen:von - - object dat person person+animal+room
bring+along brought mit|bringen - mitgebracht object acc person thing+food+drink
throw threw werfen wirft geworfen put acc person thing
fall+asleep fell ein|schlafen schläft ist:eingeschlafen none - person+animal -
meet met treffen trifft getroffen object acc person person
give+back gave zurück|geben gibt zurückgegeben recipient acc person thing+text
steal stole stehlen stiehlt gestohlen object acc person+animal thing+food+clothes+vehicle
clean+up cleaned auf|räumen - - object acc person room
wear wore tragen trägt getragen object acc person clothes
wake+up woke auf|wachen - ist:aufgewacht none - person+animal -
decide decided beschließen - beschlossen zu - person -
describe described beschreiben - beschrieben object acc person person+room+art
prepare prepared vor|bereiten bereitet vorbereitet object acc person food+drink
answer answered antworten antwortet geantwortet object dat person person
watch watched beobachten beobachtet beobachtet object acc person+animal person+animal
cook cooked kochen - - object acc person food
swim swam schwimmen - ist:geschwommen none - person+animal -
""".strip().splitlines()
]
BE = Verb("be", "", "", "", "", "sein", "ist", "gewesen", True, "be", "-", "", frozenset(), frozenset())
WEATHER = [
    _verb("rain rained regnen regnet geregnet none - it -"),
    _verb("snow snowed schneien - - none - it -"),
]


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
