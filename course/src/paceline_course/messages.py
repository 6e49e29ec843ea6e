"""Messages that any exercise may end with, whatever it is about."""

from __future__ import annotations

from paceline_course.checking import Message

GENERAL = {
    "todo": Message("it is not written yet", "replace the line that raises NotImplementedError"),
    "syntax": Message("Python cannot read the file", "the line above; often a bracket or a colon before it is missing"),
    "missing-name": Message("a name that the task asks for is not defined", "names in the task and in the file"),
    "raised": Message("the code raised an error", "the line above"),
    "unusable": Message("what came back cannot be used", "what the task says is returned: type, shape, order"),
    "died": Message("the process ended in the middle", "os._exit, a signal, or memory that ran out"),
    "exit": Message("the code ended the program", "a call of sys.exit or exit: a function returns instead"),
    "hang": Message("it did not come to an end", "the card below: it says where each process stood"),
    "printed": Message("it printed or wrote more than a check allows", "a print inside a loop"),
    "memory": Message(
        "it asked for more memory than a check allows", "a tensor of a wrong shape, or a list that grows"
    ),
    "deleted": Message("the file is not there", "paceline learn reset brings the starter back"),
    "left": Message(
        "a process found that another one had left, while it still waited for it",
        "loops that end at different times, and returns that not every process takes",
    ),
    "no-such-rank": Message(
        "it sends to a rank, or receives from one, that the group does not have",
        "the number of the other rank: from 0 to the world size - 1, often by % world size",
    ),
    "mismatch": Message(
        "ranks met in different collectives: tensors of different size came together",
        "a collective that not every rank calls, or calls in another order",
    ),
}
