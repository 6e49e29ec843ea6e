"""Whose a file is, by its name. Better not matched than matched wrongly: parts of names and ids are not enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline_course.assess.text import visible
from paceline_course.instructor.archive import Refused
from paceline_course.instructor.roster import Person, plain_name

_LONGEST = 200


def whose(people: Sequence[Person], names: Iterable[str]) -> str:
    """The learner whose id or name stands in these names.

    Raises:
        Refused: nobody's, that of several, or of another one in each: what is in a zip says whoever made it, what is on
            it may be what a platform says.
    """
    tried = [visible(name, _LONGEST, single=True) for name in names]
    said = {name: found for name in tried if (found := _called(people, name))}
    if not said:
        shown = " nor ".join(repr(name) for name in tried[:2]) or "its name"
        raise Refused(f"nobody in the roster is called like {shown}; --as ID says whose it is")
    agreed = [person.id for person in people if all(person.id in found for found in said.values())]
    if len(agreed) == 1:
        return agreed[0]
    may_be = " and ".join(f"{name!r} may be {' or '.join(found)}" for name, found in said.items())
    raise Refused(f"{may_be}; --as says which")


def _called(people: Sequence[Person], name: str) -> list[str]:
    """Ids of those whose id stands in a name, or else whose name does."""
    words = plain_name(name).split()
    if found := [person.id for person in people if _stands_in(plain_name(person.id).split(), words)]:
        return found
    by_name = [(person.id, theirs) for person in people if (theirs := plain_name(person.name).split())]
    fitting = [(own, theirs) for own, theirs in by_name if set(theirs) <= set(words)]
    # Of Anna Berg and Anna Berg Moser, the longer name is the one that was meant.
    most = max((len(theirs) for _, theirs in fitting), default=0)
    return [own for own, theirs in fitting if len(theirs) == most]


def _stands_in(wanted: Sequence[str], words: Sequence[str]) -> bool:
    """Whether those words stand there, one behind the other."""
    size = len(wanted)
    return bool(wanted) and any(list(words[at : at + size]) == list(wanted) for at in range(len(words) - size + 1))
