"""Whose a file is, by its name. Better not matched than matched wrongly: parts of names and ids are not enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline.learn.instructor.archive import Refused
from paceline.learn.instructor.roster import Person, plain_name


def whose(people: Sequence[Person], names: Iterable[str]) -> str:
    """The learner whose id or name stands in one of these names.

    Raises:
        Refused: nobody's, or that of several.
    """
    tried = list(names)
    for name in tried:
        words = plain_name(name).split()
        found = [person for person in people if _stands_in(plain_name(person.id).split(), words)]
        if not found:
            by_name = [(person, plain_name(person.name).split()) for person in people]
            found = [person for person, theirs in by_name if _stands_in(theirs, words) or set(theirs) <= set(words)]
            # Of Anna Berg and Anna Berg Moser, the longer name is the one that was meant.
            most = max((len(plain_name(person.name).split()) for person in found), default=0)
            found = [person for person in found if len(plain_name(person.name).split()) == most]
        if len(found) == 1:
            return found[0].id
        if found:
            raise Refused(f"{name!r} may be {' or '.join(person.id for person in found)}; --as says which")
    shown = " nor ".join(repr(name) for name in tried[:2]) or "its name"
    raise Refused(f"nobody in the roster is called like {shown}; --as ID says whose it is")


def _stands_in(wanted: Sequence[str], words: Sequence[str]) -> bool:
    """Whether those words stand there, one behind the other."""
    size = len(wanted)
    return bool(wanted) and any(list(words[at : at + size]) == list(wanted) for at in range(len(words) - size + 1))
