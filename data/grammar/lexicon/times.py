"""Time adverbials, weekdays, months and seasons as (english, german); "|" separates linked chunks."""

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
