"""Everything that can be typed behind `paceline learn`; the entry point `learn` of the group `paceline.verbs`."""

from __future__ import annotations

from paceline.cli.verbs import Command, Group

_SLIDES = Group(
    "Build the course's slides from text, with figures and numbers from recorded runs.",
    "paceline learn slides build D6 --format html",
    {
        "list": Command(
            "paceline_course.cli.slides:list_decks", "List all decks with their topics.", "paceline learn slides list"
        ),
        "build": Command(
            "paceline_course.cli.slides:build",
            "Build decks as HTML, editable PPTX, or PDF where a Chromium is installed.",
            "paceline learn slides build D3 D6 --format pptx",
        ),
    },
)

_ASSESS = Group(
    "Take the assessment: make a single-device training data-parallel and have it graded.",
    "paceline learn assess --practice",
    {
        "start": Command(
            "paceline_course.cli.assess:start",
            "Make the folder of the assessment: the task, the single-device training and its results.",
            "paceline learn assess start",
        ),
    },
    itself=Command(
        "paceline_course.cli.assess:grade",
        "Grade the submission in the folder.",
        "paceline learn assess --practice",
        "paceline learn assess --practice --all",
    ),
)

_CERTIFICATE = Group(
    "Make, check and show certificates of the final assessment, without a network.",
    "paceline learn certificate verify Ada-Lovelace.json --key institute.pub",
    {
        "issue": Command(
            "paceline_course.cli.certificate:issue",
            "Make a certificate from a grade: JSON, HTML, and PDF where a Chromium is installed.",
            "paceline learn certificate issue grade.json --name 'Ada Lovelace'",
        ),
        "verify": Command(
            "paceline_course.cli.certificate:verify",
            "Check a certificate and report what it proves.",
            "paceline learn certificate verify Ada-Lovelace.json --key institute.pub",
        ),
        "show": Command(
            "paceline_course.cli.certificate:show",
            "Write the page of a certificate again, and its PDF where a Chromium is installed.",
            "paceline learn certificate show Ada-Lovelace.json --out pages",
        ),
        "key": Command(
            "paceline_course.cli.certificate:key",
            "Make an instructor's pair of keys: a private file to keep and a public file to publish.",
            "paceline learn certificate key 'Institute of Parallel Things' --out keys",
        ),
        "revoke": Command(
            "paceline_course.cli.certificate:revoke",
            "Add a certificate to the issuer's revocation list and sign the list again.",
            "paceline learn certificate revoke revoked.json --id urn:uuid:... --reason error --key our.key",
        ),
    },
)

_SURVEY = Group(
    "Ask the class: a form that saves a file, and a summary of such files, without a server or names.",
    "paceline learn instructor survey form --out survey",
    {
        "form": Command(
            "paceline_course.cli.survey:form",
            "Write the form as a page that saves an answer file, and as a text file.",
            "paceline learn instructor survey form --out survey --class ./class",
        ),
        "summary": Command(
            "paceline_course.cli.survey:summary",
            "Summarize the answers: counts, medians, changes from before to after, and texts without names.",
            "paceline learn instructor survey summary survey/",
        ),
    },
)

_INSTRUCTOR = Group(
    "Teach the course: plan the day, follow the class, collect and grade. Nothing leaves the class folder.",
    "paceline learn instructor schedule --track one-day --start 9:00",
    {
        "survey": _SURVEY,
        "schedule": Command(
            "paceline_course.cli.schedule:COMMAND",
            "Plan the day: times, labs, breaks, slides, and what to leave out if it does not fit.",
            "paceline learn instructor schedule --date 2027-03-01 --ics day.ics",
        ),
        "roster": Command(
            "paceline_course.cli.instructor:roster",
            "Show who is in the class, or import people from a CSV file.",
            "paceline learn instructor roster ./class import people.csv",
        ),
        "handout": Command(
            "paceline_course.cli.instructor:handout",
            "Make a zip for learners with notebooks, texts and starters, without solutions.",
            "paceline learn instructor handout --track one-day --out course.zip",
        ),
        "collect": Command(
            "paceline_course.cli.instructor:collect",
            "Add what learners handed in to the class folder.",
            "paceline learn instructor collect ./class ~/Downloads/hand-ins",
        ),
        "overview": Command(
            "paceline_course.cli.instructor:overview",
            "Show the class: progress, who is stuck and why, predictions, assessments.",
            "paceline learn instructor overview ./class --track one-day --open",
        ),
        "grade": Command(
            "paceline_course.cli.instructor:grade",
            "Grade every collected assessment, one after the other.",
            "paceline learn instructor grade ./class --attest --key institute.key",
        ),
        "similarity": Command(
            "paceline_course.cli.instructor:similarity",
            "List similar assessments and identical logs, as a hint where to look.",
            "paceline learn instructor similarity ./class --threshold 0.7",
        ),
        "room": Command(
            "paceline_course.cli.instructor:room",
            "Check that every machine of the class is ready.",
            "paceline learn instructor room ./checked",
        ),
    },
)

LEARN = Group(
    "Take the course: labs that run anywhere, with exercises that are checked by running them.",
    "paceline learn start L1",
    {
        "start": Command(
            "paceline_course.cli.folder:start",
            "Make the course folder: notebooks, and one plain file per exercise.",
            "paceline learn start L1 --jupyter",
        ),
        "workshop": Command(
            "paceline_course.cli.folder:workshop",
            "Lay out the original workshop's notebooks and decks under their own names.",
            "paceline learn workshop ./workshop",
        ),
        "list": Command(
            "paceline_course.cli.folder:list_labs",
            "List all labs and exercises, and which are solved.",
            "paceline learn list --track one-day",
        ),
        "next": Command(
            "paceline_course.cli.folder:next_one",
            "Show the first unsolved exercise: its task and its file.",
            "paceline learn next",
        ),
        "reset": Command(
            "paceline_course.cli.folder:reset",
            "Restore the starter of an exercise and keep a copy of yours.",
            "paceline learn reset L4.2",
        ),
        "status": Command(
            "paceline_course.cli.folder:status", "Show your progress.", "paceline learn status --track one-day"
        ),
        "check": Command(
            "paceline_course.cli.answer:check",
            "Run your answer on fresh random numbers and report what is right and wrong.",
            "paceline learn check L4.2",
        ),
        "watch": Command(
            "paceline_course.cli.answer:watch",
            "Check an exercise whenever its file is saved.",
            "paceline learn watch L4.2",
        ),
        "run": Command(
            "paceline_course.cli.answer:run_file",
            "Run your file as a program, without checking it.",
            "paceline learn run L5.3 --workers 2 -- --epochs 1",
        ),
        "hint": Command("paceline_course.cli.answer:hint", "Show the next of three hints.", "paceline learn hint L4.2"),
        "solution": Command(
            "paceline_course.cli.answer:solution",
            "Show our answer, once yours has passed or you have seen all hints.",
            "paceline learn solution L4.2",
        ),
        "quiz": Command(
            "paceline_course.cli.answer:quiz", "Answer five questions with computed answers.", "paceline learn quiz L4"
        ),
        "hand-in": Command(
            "paceline_course.cli.hand_in:hand_in",
            "Pack progress, answers and the assessment into one zip for your teacher.",
            "paceline learn hand-in --name p07",
        ),
        "doctor": Command(
            "paceline_course.cli.doctor:doctor",
            "Check this machine for everything that the course needs.",
            "paceline learn doctor",
        ),
        "slides": _SLIDES,
        "assess": _ASSESS,
        "certificate": _CERTIFICATE,
        "instructor": _INSTRUCTOR,
    },
)
"""The group `paceline learn`."""
