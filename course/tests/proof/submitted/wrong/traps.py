"""What looks wrong and is right: the grader has to let it pass the gate, or people would be told to mend what is well.

Nearly all of these stand in the catalogue of faults as what must not be called one.
"""

from course.tests.proof.submissions import TRAP, Wrong, program

_NETWORK = "    network = make_model(options.variant, options.seed)\n"
_OWN = "own = indices.tensor_split(world)[rank]\n"
_READ = (
    "        signals, labels = data.batch(own.tolist())  # a list of plain numbers is read much faster than a tensor\n"
)
_WRAPPED = "wrapped = DistributedDataParallel(synchronised(model), gradient_as_bucket_view=True)\n"
_MAIN = 'if __name__ == "__main__":\n    main()\n'

WRONG = [
    Wrong(
        name="first-weights-by-rank-before-the-wrapper",
        line=None,
        messages=(),
        edits=(program(_NETWORK, "    network = make_model(options.variant, options.seed + dist.get_rank())\n"),),
        fault=TRAP,
        why="DDP gives all processes the weights of rank 0",
    ),
    Wrong(
        name="norm-replaced-behind-the-wrapper",
        line=None,
        messages=(),
        edits=(
            program(_WRAPPED, "wrapped = synchronised(DistributedDataParallel(model, gradient_as_bucket_view=True))\n"),
        ),
        fault=TRAP,
        why="the new norms have the old weights, whose gradients DDP knows",
    ),
    Wrong(
        name="clock-taken-by-name",
        line=None,
        messages=(),
        edits=(
            program("import time\n", "import time\nfrom time import monotonic\n"),
            program(
                "time.monotonic() - begun > options.seconds",
                "monotonic() - begun > options.seconds",
            ),
        ),
        fault=TRAP,
        why="from time import monotonic is the same clock",
    ),
    Wrong(
        name="clock-of-the-calendar",
        line=None,
        messages=(),
        edits=(
            program("import time\n", "import time\nfrom datetime import datetime\n"),
            program("    begun = time.monotonic()\n", "    begun = datetime.now()\n"),
            program(
                "time.monotonic() - begun > options.seconds",
                "(datetime.now() - begun).total_seconds() > options.seconds",
            ),
        ),
        fault=TRAP,
        why="datetime.now() is a clock, too",
    ),
    Wrong(
        name="one-by-one",
        line=None,
        messages=(),
        edits=(
            program(
                _READ,
                "        pairs = [data[number] for number in own.tolist()]\n"
                "        signals = torch.stack([pair[0] for pair in pairs]) if pairs else torch.zeros(0, 1, LENGTH)\n"
                "        labels = torch.tensor([int(pair[1]) for pair in pairs], dtype=torch.int64)\n",
            ),
        ),
        fault=TRAP,
        why="samples are read one by one, which is slow and right",
    ),
    Wrong(
        name="epoch-read-ahead",
        line=None,
        messages=(),
        edits=(
            program(
                "    total = 0.0\n",
                "    total = 0.0\n"
                "    mine = [indices.tensor_split(world)[rank].tolist() for indices in batches]\n"
                "    ahead = [data.batch(own) for own in mine]\n",
            ),
            program(_READ, "        signals, labels = ahead.pop(0)\n"),
        ),
        fault=TRAP,
        why="a process reads its part of the whole epoch when the epoch begins",
    ),
    Wrong(
        name="last-rank-writes",
        line=None,
        messages=(),
        edits=(
            program(
                "        if dist.get_rank() == 0:  # (4) one process writes\n",
                "        if dist.get_rank() == dist.get_world_size() - 1:\n",
            ),
        ),
        fault=TRAP,
        why="one process writes, and it is another one",
    ),
    Wrong(
        name="local-rank-writes",
        line=None,
        messages=(),
        edits=(
            program(
                "        if dist.get_rank() == 0:  # (4) one process writes\n",
                '        if os.environ.get("LOCAL_RANK", "0") == "0":\n',
            ),
        ),
        fault="F107",
        why="wrong on two machines; on one, the local rank is the rank",
    ),
    Wrong(
        name="leaves-by-os-exit",
        line=None,
        messages=(),
        edits=(program(_MAIN, _MAIN + "    os._exit(0)\n"),),
        fault=TRAP,
        why="exit code 0, whichever way",
    ),
    Wrong(
        name="waits-at-the-end",
        line=None,
        messages=(),
        edits=(program("        train(options, begun)\n", "        train(options, begun)\n        dist.barrier()\n"),),
        fault=TRAP,
        why="a barrier before the end is superfluous and does no harm",
    ),
    Wrong(
        name="log-with-more-columns",
        line=None,
        messages=(),
        edits=(
            program('"counted", "seconds")', '"counted", "seconds", "host")'),
            program("int(right), int(counted), seconds]", 'float(right), int(counted), seconds, "a, b"]'),
        ),
        fault=TRAP,
        why="one column more, and a count that is written as 81.0",
    ),
    Wrong(
        name="parts-from-the-end",
        line=None,
        messages=(),
        edits=(program(_OWN, "own = indices.flip(0).tensor_split(world)[world - 1 - rank]\n"),),
        fault=TRAP,
        why="which part a process takes is its own affair",
    ),
]
