"""Where a learner stands: what is solved, what is next, how far a track is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.records.errors import PacelineError, choices
from paceline_course.content import Course, Exercise, Lab
from paceline_course.progress import Progress

_BAR = 30
_NOTHING_LEFT = "all labs are done: the last exercise of each has passed"


@dataclass(frozen=True)
class LabState:
    """One lab.

    Attributes:
        lab: which one.
        solved: ids of exercises that passed.
        quiz: right answers of the best try, and questions; None where it was not tried.
    """

    lab: Lab
    solved: tuple[str, ...]
    quiz: tuple[int, int] | None

    @property
    def done(self) -> bool:
        """All exercises passed; of a lab without exercises, its quiz was tried."""
        return len(self.solved) == len(self.lab.exercises) and (bool(self.lab.exercises) or self.quiz is not None)


def labs_of(course: Course, track: str | None) -> list[Lab]:
    """The labs of a track in its order; all of them without one.

    Raises:
        PacelineError: there is no such track.
    """
    if track is None:
        return list(course.labs)
    for each in course.tracks:
        if each.name == track:
            return [course.lab(name) for name in each.labs]
    raise PacelineError(f"there is no track {track}", hint=f"one of {choices(each.name for each in course.tracks)}")


def states(labs: Sequence[Lab], progress: Progress) -> list[LabState]:
    """How far each lab is."""
    found = []
    for lab in labs:
        passed = [each.id for each in lab.exercises if _passed(each, progress)]
        quiz = progress.quizzes.get(lab.id)
        found.append(LabState(lab, tuple(passed), (quiz.best, quiz.questions) if quiz is not None else None))
    return found


def next_exercise(labs: Sequence[Lab], progress: Progress) -> Exercise | None:
    """The first that has not passed, from the lab on that was started last, and then from the first lab on.

    Labs whose last exercise has passed are left out: whoever can do that may skip the rest of its lab. None when there
    is no such exercise.
    """
    begin = next((at for at, lab in enumerate(labs) if lab.id == progress.lab), 0)
    ahead = [
        lab for lab in [*labs[begin:], *labs[:begin]] if lab.exercises and not _passed(lab.exercises[-1], progress)
    ]
    return next((each for lab in ahead for each in lab.exercises if not _passed(each, progress)), None)


def list_text(labs: Sequence[Lab], progress: Progress) -> str:
    """Every lab with its exercises."""
    lines = []
    for state in states(labs, progress):
        lab = state.lab
        lines.append(f"{lab.id:<4} {lab.title}  ({lab.minutes} min)")
        lines.append(f"     {lab.goal}")
        for each in lab.exercises:
            mark = "ok" if each.id in state.solved else "  "
            lines.append(f"  {mark} {each.id:<6} {each.title}  ({each.minutes} min)")
        lines.append("")
    return "\n".join(lines).rstrip()


def status_text(labs: Sequence[Lab], progress: Progress) -> str:
    """A bar, a line a lab, and what is next."""
    every = [each for lab in labs for each in lab.exercises]
    solved = [each for each in every if _passed(each, progress)]
    filled = round(_BAR * len(solved) / max(1, len(every)))
    lines = [f"[{'#' * filled}{'.' * (_BAR - filled)}] {len(solved)} of {len(every)} exercises", ""]
    for state in states(labs, progress):
        quiz = f", quiz {state.quiz[0]} of {state.quiz[1]}" if state.quiz is not None else ""
        count = f"{len(state.solved)} of {len(state.lab.exercises)}" if state.lab.exercises else "-"
        lines.append(f"  {state.lab.id:<4} {count:<8} {state.lab.title}{quiz}")
    following = next_exercise(labs, progress)
    lines += ["", f"next: {following.id} · {following.title}" if following else _NOTHING_LEFT]
    return "\n".join(lines)


def _passed(exercise: Exercise, progress: Progress) -> bool:
    state = progress.exercises.get(exercise.id)
    return state is not None and state.passed_at is not None
