"""Numbers, dates and times of the embedded grammar, as English-German chunks."""

from .lexicon import MONTHS, WEEKDAYS
from .trees import Fixed

SMALL = [
    ("", ""),
    ("one", "eins"),
    ("two", "zwei"),
    ("three", "drei"),
    ("four", "vier"),
    ("five", "fünf"),
    ("six", "sechs"),
    ("seven", "sieben"),
    ("eight", "acht"),
    ("nine", "neun"),
    ("ten", "zehn"),
    ("eleven", "elf"),
    ("twelve", "zwölf"),
]
TENS = {
    20: ("twenty", "zwanzig"),
    30: ("thirty", "dreißig"),
    40: ("forty", "vierzig"),
    50: ("fifty", "fünfzig"),
}
ORDINALS = [
    ("first", "ersten"),
    ("second", "zweiten"),
    ("third", "dritten"),
    ("fourth", "vierten"),
    ("fifth", "fünften"),
    ("sixth", "sechsten"),
    ("seventh", "siebten"),
    ("eighth", "achten"),
    ("ninth", "neunten"),
    ("tenth", "zehnten"),
    ("eleventh", "elften"),
    ("twelfth", "zwölften"),
    ("thirteenth", "dreizehnten"),
    ("fourteenth", "vierzehnten"),
    ("fifteenth", "fünfzehnten"),
    ("sixteenth", "sechzehnten"),
    ("seventeenth", "siebzehnten"),
    ("eighteenth", "achtzehnten"),
    ("nineteenth", "neunzehnten"),
]
ENGLISH_TENTHS = {20: "twentieth", 30: "thirtieth"}


def number_words(number: int) -> tuple[str, str]:
    """Return a number (1-12 or 20-59) in words: "twenty three", "dreiundzwanzig" with the unit first."""
    if number <= 12:
        return SMALL[number]
    tens, unit = number - number % 10, number % 10
    if unit == 0:
        return TENS[tens]
    german_unit = "ein" if unit == 1 else SMALL[unit][1]
    return f"{TENS[tens][0]} {SMALL[unit][0]}", f"{german_unit}und{TENS[tens][1]}"


def ordinal_words(day: int) -> tuple[str, str]:
    """Return a day of the month (1-31) in words: "twenty third", in the dative "dreiundzwanzigsten"."""
    if day <= 19:
        return ORDINALS[day - 1]
    tens, unit = day - day % 10, day % 10
    german = number_words(day)[1] + "sten"
    return (f"{TENS[tens][0]} {ORDINALS[unit - 1][0]}" if unit else ENGLISH_TENTHS[tens]), german


def date(day: int, month: int) -> Fixed:
    """Return a date: "on the third of May", "am dritten Mai"."""
    return Fixed((("on the", "am"), ordinal_words(day), ("of", ""), MONTHS[month - 1]))


def weekday(day: int) -> Fixed:
    """Return a weekday (day 0 is Monday): "on Monday", "am Montag"."""
    return Fixed((("on", "am"), WEEKDAYS[day]))


def clock(hour: int, minutes: int) -> Fixed:
    """Return a time of day: hour 1-12 and 0, 5, 10, 15, 20, 30, 40, 45, 50 or 55 minutes.

    German counts half hours towards the next hour: "at half past three" is "um halb vier".
    """
    next_hour = hour % 12 + 1
    if minutes == 0:
        hour_words = (SMALL[hour][0], "ein" if hour == 1 else SMALL[hour][1])
        return Fixed((("at", "um"), hour_words, ("o'clock", "Uhr")))
    if minutes == 30:
        return Fixed((("at", "um"), ("half past", "halb"), (SMALL[hour][0], SMALL[next_hour][1])))
    relation, hour_words = (
        (("past", "nach"), SMALL[hour]) if minutes < 30 else (("to", "vor"), SMALL[next_hour])
    )
    distance = min(minutes, 60 - minutes)
    minute_words = ("a quarter", "Viertel") if distance == 15 else number_words(distance)
    return Fixed((("at", "um"), minute_words, relation, hour_words))
