"""Nouns and names of the lexicon."""

from .entries import Noun, parse_kinds


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
