"""Forty trees built by hand, each with the German a person wrote for it (and its English)."""

from data.grammar import lexicon as lex
from data.grammar.phrases import number_words
from data.grammar.trees import Fixed, Gap, Infinitive, Pair, Relative, Sentence
from tests.kits.tree_nodes import be, cl, fixed, np, pp, prep, pro, rel, say, sub
from tests.kits.trees_phrases import PHRASES

CLAUSES: list[tuple[Sentence, str, str]] = [
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
"""Negation, questions, subordinate clauses and what stands in them, joined sentences."""
PAIRS = [*PHRASES, *CLAUSES]
