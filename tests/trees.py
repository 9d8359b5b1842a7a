"""Forty trees built by hand, each with the German a person wrote for it (and its English)."""

from data.grammar import lexicon as lex
from data.grammar.lexicon import Adjective, Noun, Preposition, Verb
from data.grammar.numerals import clock, date, number_words, weekday
from data.grammar.trees import (
    Clause,
    Fixed,
    Gap,
    Infinitive,
    NounPhrase,
    Pair,
    Predicate,
    PrepPhrase,
    Pronoun,
    Relative,
    Sentence,
    Subordinate,
)


def noun(en: str) -> Noun:
    return next(entry for entry in lex.NOUNS if entry.en == en)


def adj(en: str) -> Adjective:
    return next(entry for entry in lex.ADJECTIVES if entry.en == en)


def verb(en: str, particle: str = "") -> Verb:
    return next(entry for entry in lex.VERBS if (entry.en, entry.particle) == (en, particle))


def np(
    en: str, det: str = "the", *adjectives: str, plural: bool = False, number: int = 0, **parts: object
) -> NounPhrase:
    counted = Fixed((number_words(number),)) if number else None
    described = tuple(adj(word) for word in adjectives)
    return NounPhrase(noun(en), det, plural, counted, described, **parts)  # type: ignore[arg-type]


def rel(subject: object, en: str, tense: str = "present", particle: str = "", **parts: object) -> Relative:
    front = next((name for name in ("object", "recipient", "place") if holds_gap(parts.get(name))), "subject")
    return Relative(Clause(subject, verb(en, particle), tense, front=front, **parts))  # type: ignore[arg-type]


def holds_gap(part: object) -> bool:
    return isinstance(part, Gap) or (isinstance(part, PrepPhrase) and isinstance(part.nominal, Gap))


def pp(preposition: Preposition, phrase: NounPhrase | Gap) -> PrepPhrase:
    return PrepPhrase(preposition, phrase)


def prep(en: str, case: str) -> Preposition:
    tables = [*lex.PLACES, *lex.DIRECTIONS, *lex.TARGETS, lex.WITH, lex.WITHOUT, lex.FROM, lex.FOR]
    return next(entry for entry in tables if (entry.en, entry.case) == (en, case))


def cl(subject: object, en: str, tense: str = "present", particle: str = "", **parts: object) -> Clause:
    return Clause(subject, verb(en, particle), tense, **parts)  # type: ignore[arg-type]


def be(
    subject: object, adjective: str, tense: str = "present", degree: Fixed | None = None, **parts: object
) -> Clause:
    return Clause(subject, lex.BE, tense, predicate=Predicate(adj(adjective), degree), **parts)  # type: ignore[arg-type]


def fixed(en: str, de: str) -> Fixed:
    return Fixed(((en, de),))


def sub(en: str, de: str, clause: Clause) -> Subordinate:
    return Subordinate(fixed(en, de), clause)


def say(main: Clause, **parts: object) -> Sentence:
    return Sentence(main, **parts)  # type: ignore[arg-type]


def pro(en: str) -> Pronoun:
    return Pronoun(en)


PAIRS: list[tuple[Sentence, str, str]] = [
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
    (
        say(cl(np("king"), "sell", "present", negated=True, object=np("castle", "his"))),
        "The king does not sell his castle.",
        "Der König verkauft sein Schloss nicht.",
    ),
    (
        say(cl(pro("they"), "swim", "can", negated=True, place=pp(prep("at", "dat"), np("lake")))),
        "They cannot swim at the lake.",
        "Sie können nicht am See schwimmen.",
    ),
    (
        say(cl(np("woman"), "help", front="", object=pro("you")), asks=True),
        "Does the woman help you?",
        "Hilft die Frau dir?",
    ),
    (
        say(cl(pro("who"), "clean", "past", "up", object=np("kitchen")), asks=True),
        "Who cleaned up the kitchen?",
        "Wer hat die Küche aufgeräumt?",
    ),
    (
        say(cl(np("judge"), "invite", object=pro("who"), front="object"), asks=True),
        "Whom does the judge invite?",
        "Wen lädt der Richter ein?",
    ),
    (
        say(cl(pro("I"), "wear", "should", object=np("coat", "which"), front="object"), asks=True),
        "Which coat should I wear?",
        "Welchen Mantel soll ich tragen?",
    ),
    (
        say(cl(np("colleague", "your"), "work", question=fixed("where", "wo"), front="question"), asks=True),
        "Where does your colleague work?",
        "Wo arbeitet dein Kollege?",
    ),
    (
        say(
            cl(
                np("daughter"),
                "believe",
                complement=sub("that", "dass", cl(np("thief"), "come", "past", "back")),
            )
        ),
        "The daughter believes that the thief came back.",
        "Die Tochter glaubt, dass der Dieb zurückgekommen ist.",
    ),
    (
        say(
            cl(
                np("waitress"),
                "ask",
                "past",
                complement=sub(
                    "whether", "ob", cl(np("customer"), "drink", "want", object=np("coffee", "", "hot"))
                ),
            )
        ),
        "The waitress asked whether the customer wants to drink hot coffee.",
        "Die Kellnerin hat gefragt, ob der Kunde heißen Kaffee trinken will.",
    ),
    (
        say(
            cl(
                np("gardener"),
                "try",
                "past",
                complement=Infinitive(cl(None, "close", object=np("window", plural=True))),
            )
        ),
        "The gardener tried to close the windows.",
        "Der Gärtner hat versucht, die Fenster zuzumachen.",
    ),
    (
        say(
            cl(np("aunt"), "go", direction=pp(prep("into", "acc"), np("town"))),
            after=(Infinitive(cl(None, "visit", object=np("museum", "the", "famous")), purpose=True),),
        ),
        "The aunt goes into the town in order to visit the famous museum.",
        "Die Tante geht in die Stadt, um das berühmte Museum zu besuchen.",
    ),
    (
        say(be(np("room", relative=rel(np("king"), "sleep", place=pp(prep("in", "dat"), Gap()))), "dirty")),
        "The room in which the king sleeps is dirty.",
        "Das Zimmer, in dem der König schläft, ist schmutzig.",
    ),
    (
        say(
            cl(
                np("man", relative=Relative(be(np("dog", "whose", "old"), "sick", "past"))),
                "cry",
            )
        ),
        "The man whose old dog was sick cries.",
        "Der Mann, dessen alter Hund krank war, weint.",
    ),
    (
        say(be(np("brother", "her"), "old", degree=Fixed((number_words(42), ("years", "Jahre"))))),
        "Her brother is forty two years old.",
        "Ihr Bruder ist zweiundvierzig Jahre alt.",
    ),
    (
        say(
            cl(
                np("son", of=np("baker", "this")),
                "buy",
                object=np("radio", "the", "cheap"),
                manner=Fixed((("for", "für"), number_words(31), ("euros", "Euro"))),
            )
        ),
        "The son of this baker buys the cheap radio for thirty one euros.",
        "Der Sohn dieses Bäckers kauft das billige Radio für einunddreißig Euro.",
    ),
    (
        say(
            cl(Pair(np("Anna", ""), np("Peter", "")), "dance"),
            conjunction=fixed("but", "aber"),
            second=say(cl(np("painter", "the", "sad"), "fall", "present", "asleep")),
        ),
        "Anna and Peter dance, but the sad painter falls asleep.",
        "Anna und Peter tanzen, aber der traurige Maler schläft ein.",
    ),
    (
        say(
            cl(
                np(
                    "hunter",
                    relative=rel(
                        Gap(),
                        "follow",
                        "past",
                        object=np("bear", "a", "wild", relative=rel(np("lion"), "watch", object=Gap())),
                    ),
                ),
                "laugh",
                frequency=fixed("often", "oft"),
            )
        ),
        "The hunter who followed a wild bear that the lion watches often laughs.",
        "Der Jäger, der einem wilden Bären, den der Löwe beobachtet, gefolgt ist, lacht oft.",
    ),
    (
        say(
            cl(
                np("grandmother", "no"),
                "throw",
                "will",
                "away",
                object=np("photo", "your", "beautiful", plural=True),
            )
        ),
        "No grandmother will throw away your beautiful photos.",
        "Keine Großmutter wird deine schönen Fotos wegwerfen.",
    ),
    (
        say(
            be(np("hotel", "many", "small", plural=True), "clean", "present"),
            before=sub(
                "if",
                "wenn",
                cl(
                    np("guest", "all", "rich", plural=True, modifier=pp(lex.FROM, np("Vienna", ""))),
                    "travel",
                    direction=pp(lex.DIRECTIONS[3], np("Cologne", "")),
                ),
            ),
        ),
        "If all rich guests from Vienna travel to Cologne, many small hotels are clean.",
        "Wenn alle reichen Gäste aus Wien nach Köln reisen, sind viele kleine Hotels sauber.",
    ),
]
