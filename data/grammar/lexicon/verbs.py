"""Verbs of the lexicon, with "be" and the weather verbs."""

from .entries import Verb, parse_kinds


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
