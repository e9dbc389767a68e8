"""Spell what Python calls something in the letters that C has."""

from __future__ import annotations

import re
import unicodedata

_LETTER = re.compile(r"(?:GREEK|CYRILLIC) (SMALL|CAPITAL) LETTER (?:FINAL )?([A-Z]+)")


def spell(name: str) -> str:
    """
    Return *name* in letters of C, which may still be a word that C reserves.

    Accents are left out, and Greek and Cyrillic letters have the names that Unicode gives them: "θ_é" is
    "theta_e". What else is no letter of C is an underscore; a name of such alone is "unnamed".
    """
    letters = name if name.isascii() else "".join(map(_spell_letter, unicodedata.normalize("NFKD", name)))
    return re.sub(r"\W+", "_", letters, flags=re.ASCII).strip("_") or "unnamed"


def _spell_letter(letter: str) -> str:
    if unicodedata.combining(letter):
        return ""
    found = None if letter.isascii() else _LETTER.match(unicodedata.name(letter, ""))
    if found is None:
        return letter
    return found[2].lower() if found[1] == "SMALL" else found[2].capitalize()
