"""What a docstring says of a function and its parameters.

Read are the sections of Google style (`Args:`) and of NumPy style (an underlined `Parameters`), and
the fields of Sphinx (`:param name:`).
"""

from __future__ import annotations

import re

GOOGLE = re.compile(
    r"^(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]+.*\n?|[ \t]*\n)*)", re.MULTILINE
)
GOOGLE_ENTRY = re.compile(r"[ \t]+\*{0,2}(\w+)[ \t]*(?:\([^)]*\))?:[ \t]*(.*)")
NUMPY = re.compile(
    r"^(?:Other )?Parameters[ \t]*\n-{3,}[ \t]*\n((?:(?!.*\n-{3,}[ \t]*$).*\n?)*)", re.MULTILINE
)
NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+(?:[ \t]*,[ \t]*\*{0,2}\w+)*)[ \t]*(?::.*)?$")
SPHINX = re.compile(
    r"^:(?:param|parameter|arg|argument)[ \t]+(?:[^:\n]*[ \t])?\*{0,2}(\w+):[ \t]*"
    r"(.*(?:\n[ \t]+\S.*)*)",
    re.MULTILINE,
)
# Where the prose ends, whichever style it is.
SECTION = re.compile(
    r"^(?:[A-Z][A-Za-z ]*:[ \t]*$|[A-Z][A-Za-z ]*\n-{3,}[ \t]*$|:[a-z]+(?:[ \t][^:\n]*)?:)",
    re.MULTILINE,
)


def parse_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """The first paragraph, and what is said of each parameter."""
    notes: dict[str, str] = {}
    google = GOOGLE.search(doc)
    if google:
        notes.update(google_notes(google.group(1)))
    for numpy in NUMPY.finditer(doc):
        notes.update(numpy_notes(numpy.group(1)))
    for sphinx in SPHINX.finditer(doc):
        notes[sphinx.group(1)] = joined(sphinx.group(2))
    section = SECTION.search(doc)
    prose = doc[: section.start()] if section else doc
    return joined(prose.strip().split("\n\n")[0]), {
        name: note for name, note in notes.items() if note
    }


def joined(text: str) -> str:
    """Text of several lines on one."""
    return " ".join(text.split())


def google_notes(section: str) -> dict[str, str]:
    """The entries below `Args:`."""
    notes: dict[str, str] = {}
    current, margin = None, None
    for line in section.splitlines():
        indent = len(line) - len(line.lstrip())
        entry = GOOGLE_ENTRY.match(line)
        if entry and (margin is None or indent <= margin):
            current, margin = entry.group(1), indent
            notes[current] = entry.group(2).strip()
        elif current and line.strip():
            notes[current] = f"{notes[current]} {line.strip()}".strip()
    return notes


def numpy_notes(section: str) -> dict[str, str]:
    """The entries below an underlined `Parameters`."""
    notes: dict[str, str] = {}
    current: list[str] = []
    for line in section.splitlines():
        if not line.strip():
            continue
        if line[0].isspace():
            for name in current:
                notes[name] = f"{notes[name]} {line.strip()}".strip()
            continue
        entry = NUMPY_ENTRY.match(line)
        current = [name.strip(" \t*") for name in entry.group(1).split(",")] if entry else []
        notes.update(dict.fromkeys(current, ""))
    return notes
