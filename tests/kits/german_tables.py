"""The paradigms, genders, verb forms and valencies that the recogniser knows, written out a second time."""


def words(text: str) -> list[str]:
    """Split a table written as running text."""
    return text.split()


MASCULINE = """
Mann/Männer Hund/Hunde Lehrer/Lehrer Garten/Gärten Tisch/Tische Brief/Briefe Freund/Freunde Vater/Väter
Apfel/Äpfel Arzt/Ärzte Bruder/Brüder Schlüssel/Schlüssel Hut/Hüte Sohn/Söhne Kaffee/ Stuhl/Stühle
König/Könige Vogel/Vögel Laden/Läden Wald/Wälder Mantel/Mäntel Zug/Züge Onkel/Onkel Gast/Gäste Kuchen/Kuchen
Tee/ Ball/Bälle Park/Parks Bahnhof/Bahnhöfe Schuh/Schuhe Computer/Computer Koffer/Koffer Teller/Teller
Löffel/Löffel Käse/ Wein/ Keller/Keller Berg/Berge See/Seen Fluss/Flüsse Baum/Bäume Bus/Busse
Richter/Richter Gärtner/Gärtner Maler/Maler Sänger/Sänger Großvater/Großväter Dieb/Diebe Bäcker/Bäcker
Jäger/Jäger Regenschirm/Regenschirme Peter/ Paul/ Thomas/ Martin/
"""
WEAK = "Junge Student Nachbar Bauer Bär Löwe Kollege Kunde"
FEMININE = """
Frau/Frauen Katze/Katzen Tür/Türen Mutter/Mütter Schule/Schulen Schwester/Schwestern Straße/Straßen
Blume/Blumen Küche/Küchen Zeitung/Zeitungen Kiste/Kisten Tochter/Töchter Milch/ Stadt/Städte
Königin/Königinnen Lampe/Lampen Tasche/Taschen Tasse/Tassen Geschichte/Geschichten Kirche/Kirchen
Flasche/Flaschen Tante/Tanten Brücke/Brücken Großmutter/Großmütter Jacke/Jacken Uhr/Uhren Maschine/Maschinen
Suppe/Suppen Kartoffel/Kartoffeln Fabrik/Fabriken Bibliothek/Bibliotheken Insel/Inseln Kuh/Kühe Maus/Mäuse
Ziege/Ziegen Ente/Enten Krankenschwester/Krankenschwestern Kellnerin/Kellnerinnen Anna/ Maria/ Lisa/ Clara/
"""
NEUTER = """
Kind/Kinder Haus/Häuser Buch/Bücher Mädchen/Mädchen Auto/Autos Fenster/Fenster Brot/ Wasser/ Bett/Betten
Pferd/Pferde Bild/Bilder Zimmer/Zimmer Geschenk/Geschenke Lied/Lieder Dorf/Dörfer Messer/Messer Hemd/Hemden
Kleid/Kleider Radio/Radios Gedicht/Gedichte Ei/Eier Fleisch/ Bier/ Hotel/Hotels Büro/Büros
Krankenhaus/Krankenhäuser Museum/Museen Theater/Theater Schloss/Schlösser Schiff/Schiffe Fahrrad/Fahrräder
Schwein/Schweine Foto/Fotos Sofa/Sofas Berlin/ Wien/ Hamburg/ München/ Köln/ Zürich/
"""
GENITIVES = words("""
Mannes Lehrers Freundes Vaters Arztes Bruders Sohnes Königs Onkels Gastes Richters Gärtners Malers Sängers
Großvaters Diebes Bäckers Jägers Kindes Mädchens
""")
ADJECTIVES = words("""
alt klein neu jung groß schön rot gut kalt grün freundlich schwarz müd weiß lang glücklich blau krank kurz
frisch reich hungrig schwer traurig klug stark heiß arm billig hässlich schmutzig berühmt faul sauber
seltsam wichtig leer ruhig rund wild
""")

# infinitive er-form participle auxiliary complements (-, A, D, AD, C: a clause, or preposition:case)
VERBS = """
sehen sieht gesehen haben A
schlafen schläft geschlafen haben -
geben gibt gegeben haben AD
lesen liest gelesen haben A
kaufen kauft gekauft haben A
sagen sagt gesagt haben C
auf|machen macht aufgemacht haben A
arbeiten arbeitet gearbeitet haben -
suchen sucht gesucht haben A
helfen hilft geholfen haben D
gehen geht gegangen sein to
essen isst gegessen haben A
wissen weiß gewusst haben C
finden findet gefunden haben A
an|rufen ruft angerufen haben A
warten wartet gewartet haben auf:A
zeigen zeigt gezeigt haben AD
lieben liebt geliebt haben A
trinken trinkt getrunken haben A
zu|machen macht zugemacht haben A
glauben glaubt geglaubt haben C
auf|stehen steht aufgestanden sein -
versuchen versucht versucht haben C
spielen spielt gespielt haben mit:D
schreiben schreibt geschrieben haben AD
fahren fährt gefahren sein to
ab|holen holt abgeholt haben A
tragen trägt getragen haben A/Ato
lachen lacht gelacht haben -
besuchen besucht besucht haben A
ein|laden lädt eingeladen haben A
hören hört gehört haben A
singen singt gesungen haben -
hoffen hofft gehofft haben C
denken denkt gedacht haben an:A
danken dankt gedankt haben D
ein|schalten schaltet eingeschaltet haben A
verkaufen verkauft verkauft haben A
schicken schickt geschickt haben AD
fragen fragt gefragt haben C
zurück|kommen kommt zurückgekommen sein -
malen malt gemalt haben A
waschen wäscht gewaschen haben A
zu|hören hört zugehört haben D
laufen läuft gelaufen sein to
vergessen vergisst vergessen haben A
erklären erklärt erklärt haben AD
weg|werfen wirft weggeworfen haben A
an|kommen kommt angekommen sein -
bringen bringt gebracht haben AD
stellen stellt gestellt haben Ato
sprechen spricht gesprochen haben über:A
versprechen verspricht versprochen haben C
aus|schalten schaltet ausgeschaltet haben A
reparieren repariert repariert haben A
tanzen tanzt getanzt haben -
folgen folgt gefolgt sein D
reisen reist gereist sein to
weinen weint geweint haben -
träumen träumt geträumt haben von:D
mit|bringen bringt mitgebracht haben A
werfen wirft geworfen haben Ato
ein|schlafen schläft eingeschlafen sein -
treffen trifft getroffen haben A
zurück|geben gibt zurückgegeben haben AD
stehlen stiehlt gestohlen haben A
auf|räumen räumt aufgeräumt haben A
auf|wachen wacht aufgewacht sein -
beschließen beschließt beschlossen haben C
beschreiben beschreibt beschrieben haben A
vor|bereiten bereitet vorbereitet haben A
antworten antwortet geantwortet haben D
beobachten beobachtet beobachtet haben A
kochen kocht gekocht haben A
schwimmen schwimmt geschwommen sein -
regnen regnet geregnet haben -
schneien schneit geschneit haben -
"""
SECOND = {  # du-forms that are not the er-form with st for t
    "liest": "liest", "isst": "isst", "weiß": "weißt", "vergisst": "vergisst", "beschließt": "beschließt",
    "reist": "reist", "tanzt": "tanzt",
}  # fmt: skip
AUXILIARY = {  # ich du er wir
    "haben": "habe hast hat haben", "sein": "bin bist ist sind", "werden": "werde wirst wird werden",
    "können": "kann kannst kann können", "müssen": "muss musst muss müssen",
    "wollen": "will willst will wollen",
    "sollen": "soll sollst soll sollen", "dürfen": "darf darfst darf dürfen",
}  # fmt: skip
WAS = words("war warst war waren")
PRONOUNS = """
ich:N1 du:N2 er:N3 sie:N3 sie:Np sie:A3 sie:Ap es:N3 wir:Np mich:A1 dich:A2 ihn:A3 uns:Ap uns:Dp mir:D1
dir:D2 ihm:D3 ihr:D3 ihnen:Dp wer:N3 wen:A3 wem:D3 was:N3 was:A3
"""
CASES = "NADG"
# rows m f n p, columns nominative accusative dative genitive; 0 is no ending
ARTICLES = {"m": "der den dem des", "f": "die die der der", "n": "das das dem des", "p": "die die den der"}
RELATIVES = {"m": "der den dem", "f": "die die der", "n": "das das dem", "p": "die die denen"}
DIES = {"m": "er en em es", "f": "e e er er", "n": "es es em es", "p": "e e en er"}
EIN = {"m": "0 en em es", "f": "e e er er", "n": "0 0 em es", "p": "e e en er"}
AFTER_DER = {"m": "e en en en", "f": "e e en en", "n": "e e en en", "p": "en en en en"}
AFTER_EIN = {"m": "er en en en", "f": "e e en en", "n": "es es en en", "p": "en en en en"}
AFTER_NONE = {"m": "er en em en", "f": "e e er er", "n": "es es em en", "p": "e e en er"}
TWO_WAY = words("in an auf unter hinter neben vor über")
FIXED_CASE = {
    "mit": "D",
    "zu": "D",
    "aus": "D",
    "von": "D",
    "nach": "D",
    "ohne": "A",
    "für": "A",
    "um": "A",
    "durch": "A",
}
MERGED = {"im": "in dem", "ins": "in das", "am": "an dem", "zum": "zu dem", "zur": "zu der", "vom": "von dem"}
SUBORDINATORS = words("dass ob weil wenn obwohl während bevor sobald bis wo wann warum wie")
ADVERBS = words("oft immer nie manchmal langsam schnell allein vorsichtig leise heimlich")
MONTHS = words("Januar Februar März April Mai Juni Juli August September Oktober November Dezember")
SEASONS = words("Frühling Sommer Herbst Winter")
DAYS = words("Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag Morgen Abend")
UNITS = words("ein zwei drei vier fünf sechs sieben acht neun")
SMALL = [*UNITS[1:], "zehn", "elf", "zwölf"]
TENS = ["zwanzig", "dreißig", "vierzig"]
NUMBERS = {*SMALL, *TENS, *(f"{unit}und{ten}" for unit in UNITS for ten in TENS)}
ORDINALS = words("""
ersten zweiten dritten vierten fünften sechsten siebten achten neunten zehnten elften zwölften dreizehnten
vierzehnten fünfzehnten sechzehnten siebzehnten achtzehnten neunzehnten zwanzigsten einundzwanzigsten
zweiundzwanzigsten dreiundzwanzigsten vierundzwanzigsten fünfundzwanzigsten sechsundzwanzigsten
siebenundzwanzigsten achtundzwanzigsten neunundzwanzigsten dreißigsten einunddreißigsten
""")
DATED = ["jeden Tag", "letzte Woche", "letztes Jahr", "nächste Woche", "nächstes Jahr", "in der Nacht"]
