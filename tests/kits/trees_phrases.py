"""Trees built by hand with the German a person wrote: noun phrases, cases, objects, places and times."""

from data.grammar.phrases import clock, date, weekday
from data.grammar.trees import Gap, Sentence
from tests.kits.tree_nodes import cl, fixed, np, pp, prep, pro, rel, say, sub

PHRASES: list[tuple[Sentence, str, str]] = [
    (
        say(cl(np("woman", "the", "old", relative=rel(Gap(), "see", object=np("dog"))), "sleep")),
        "The old woman who sees the dog sleeps.",
        "Die alte Frau, die den Hund sieht, schläft.",
    ),
    (
        say(cl(pro("he"), "give", object=np("book", "a"), recipient=np("child", "the", "small"))),
        "He gives a book to the small child.",
        "Er gibt dem kleinen Kind ein Buch.",
    ),
    (
        say(cl(np("friend", "my"), "open", "past", object=np("door", "the", "red"))),
        "My friend opened the red door.",
        "Mein Freund hat die rote Tür aufgemacht.",
    ),
    (
        say(cl(np("girl"), "pick", particle="up", object=pro("he"))),
        "The girl picks him up.",
        "Das Mädchen holt ihn ab.",
    ),
    (
        say(cl(np("girl"), "pick", particle="up", object=np("boy", "her", "tired"))),
        "The girl picks up her tired boy.",
        "Das Mädchen holt ihren müden Jungen ab.",
    ),
    (
        say(
            cl(pro("I"), "sleep"),
            after=(
                sub("because", "weil", cl(np("teacher", "our"), "read", object=np("newspaper", "a", "long"))),
            ),
        ),
        "I sleep because our teacher reads a long newspaper.",
        "Ich schlafe, weil unser Lehrer eine lange Zeitung liest.",
    ),
    (
        say(
            cl(np("mother"), "call", "past", object=np("doctor")),
            before=sub("although", "obwohl", cl(np("child", plural=True), "get", particle="up")),
        ),
        "Although the children get up, the mother called the doctor.",
        "Obwohl die Kinder aufstehen, hat die Mutter den Arzt angerufen.",
    ),
    (
        say(
            cl(
                np("dog", relative=rel(np("man"), "help", "past", object=Gap())),
                "eat",
                object=np("bread", "", "fresh"),
            )
        ),
        "The dog that the man helped eats fresh bread.",
        "Der Hund, dem der Mann geholfen hat, isst frisches Brot.",
    ),
    (
        say(
            cl(
                pro("we"),
                "see",
                object=np(
                    "child",
                    plural=True,
                    relative=rel(np("aunt"), "show", recipient=Gap(), object=np("house")),
                ),
            )
        ),
        "We see the children to whom the aunt shows the house.",
        "Wir sehen die Kinder, denen die Tante das Haus zeigt.",
    ),
    (
        say(
            cl(
                np("student"),
                "work",
                place=pp(prep("in", "dat"), np("library", "the", "new")),
                times=weekday(0),
            )
        ),
        "The student works in the new library on Monday.",
        "Der Student arbeitet am Montag in der neuen Bibliothek.",
    ),
    (
        say(cl(np("guest"), "arrive", "past", times=date(3, 5), front="times")),
        "On the third of May the guest arrived.",
        "Am dritten Mai ist der Gast angekommen.",
    ),
    (
        say(cl(np("train", "this"), "arrive", times=clock(3, 30))),
        "This train arrives at half past three.",
        "Dieser Zug kommt um halb vier an.",
    ),
    (
        say(cl(pro("you"), "wake", "must", "up", times=clock(4, 45))),
        "You must wake up at a quarter to five.",
        "Du musst um Viertel vor fünf aufwachen.",
    ),
    (
        say(cl(pro("you"), "read", object=np("letter", "this"))),
        "You read this letter.",
        "Du liest diesen Brief.",
    ),
    (
        say(cl(np("farmer", "every"), "buy", object=np("horse", "", "strong", plural=True, number=23))),
        "Every farmer buys twenty three strong horses.",
        "Jeder Bauer kauft dreiundzwanzig starke Pferde.",
    ),
    (
        say(cl(np("nurse", "some", plural=True), "thank", "past", object=np("neighbour", "their"))),
        "Some nurses thanked their neighbour.",
        "Einige Krankenschwestern haben ihrem Nachbarn gedankt.",
    ),
    (
        say(cl(np("cat"), "wait", object=np("mouse", "the", "small", "white"))),
        "The cat waits for the small white mouse.",
        "Die Katze wartet auf die kleine weiße Maus.",
    ),
    (
        say(cl(np("singer", "a", "famous"), "dream", "past", object=np("castle", "the", "old"))),
        "A famous singer dreamed of the old castle.",
        "Ein berühmter Sänger hat vom alten Schloss geträumt.",
    ),
    (
        say(
            cl(
                pro("she"),
                "go",
                direction=pp(prep("to", "dat"), np("school")),
                times=fixed("tomorrow", "morgen"),
            )
        ),
        "She goes to the school tomorrow.",
        "Sie geht morgen zur Schule.",
    ),
    (
        say(
            cl(
                np("uncle"),
                "place",
                "past",
                object=np("cup", plural=True),
                direction=pp(prep("on", "acc"), np("table")),
            )
        ),
        "The uncle placed the cups on the table.",
        "Der Onkel hat die Tassen auf den Tisch gestellt.",
    ),
    (
        say(cl(np("bird"), "sleep", place=pp(prep("under", "dat"), np("tree", "a", "green")))),
        "The bird sleeps under a green tree.",
        "Der Vogel schläft unter einem grünen Baum.",
    ),
]
