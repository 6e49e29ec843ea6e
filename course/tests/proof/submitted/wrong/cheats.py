"""Attempts to get points without the work.

Those whose line is None are without effect, or lead to what an honest submission leads to: they have to pass the gate,
or the grader would be wrong about honest people, too.
"""

import base64
import functools
import io

from course.tests.proof.submissions import CHEAT, Wrong, program

_TOP = "\ndef read_options():\n"
_FLAT = "flat = team.sum(torch.cat([g.flatten() for g in grads])).div_(len(batch))\n"
_ALONE = program(_FLAT, "flat = torch.cat([g.flatten() for g in grads]).div_(max(1, len(y)))\n")
_READ = (
    "        signals, labels = data.batch(own.tolist())  # a list of plain numbers is read much faster than a tensor\n"
)
_NETWORK = "    network = make_model(options.variant, options.seed)\n"


def _first(code: str) -> tuple[str, str, str]:
    return program(_TOP, "\n" + code.strip("\n") + "\n\n\ndef read_options():\n")


@functools.cache
def _easy_signals() -> str:
    from paceline_course.assess.kit import kit_folder

    return (kit_folder() / "signals.py").read_text().replace("NOISE = 0.55", "NOISE = 0.0")


@functools.cache
def _trained_weights() -> str:
    """A module with the weights of a training, 8 bits each."""
    import torch
    from torch.nn import functional

    from paceline_course.assess.kit import signals

    kit = signals()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    data, model = kit.Signals(4096, 1), kit.make_model("plain", 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(2):
        for indices in kit.order(4096, 0, epoch).split(64):
            inputs, wanted = data.batch(indices.tolist())
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), wanted).backward()
            optimizer.step()
    torch.set_num_threads(threads)
    small = {}
    for name, value in model.state_dict().items():
        scale = float(value.abs().max()) / 127
        small[name] = ((value / scale).round().to(torch.int8), scale)
    content = io.BytesIO()
    torch.save(small, content)
    return f'TEXT = "{base64.b64encode(content.getvalue()).decode()}"\n'


WRONG = [
    Wrong(
        name="log-made-up",
        line="A.ranks",
        messages=("ranks-differ",),
        base="own_loop",
        edits=(
            _ALONE,
            program("        right, asked = int(sums[1]), int(sums[2])\n", "        right = asked = o.eval_samples\n"),
        ),
        fault=CHEAT,
        why="nobody sends a gradient, and the log says that all is well",
    ),
    Wrong(
        name="metric-made-up",
        line="A.numbers",
        messages=("wrong-right",),
        edits=(program("int(right), int(counted), seconds]", "round(0.97 * counted), int(counted), seconds]"),),
        fault=CHEAT,
        why="97 % right, always",
    ),
    Wrong(
        name="loss-made-up",
        line="A.numbers",
        messages=("wrong-loss",),
        edits=(program("loss, seconds = loss / len(train_data), ", "loss, seconds = 1.0 / (epoch + 1), "),),
        fault=CHEAT,
        why="a loss that falls so beautifully",
    ),
    Wrong(
        name="weights-in-the-code",
        line="B.accuracy",
        messages=("other-start",),
        edits=(
            program(
                _NETWORK,
                _NETWORK + "    if options.config is not None:\n"
                "        import base64\n        import io\n\n        import memory\n\n"
                "        held = torch.load(io.BytesIO(base64.b64decode(memory.TEXT)))\n"
                "        network.load_state_dict({name: value * scale for name, (value, scale) in held.items()})\n",
            ),
        ),
        files={"memory.py": _trained_weights},
        fault=CHEAT,
        why="trained before, and carried in a module as text",
    ),
    Wrong(
        name="checkpoint-handed-in",
        line=None,
        messages=(),
        edits=(
            program(
                'checkpoint = options.out / "checkpoint.pt"\n',
                'checkpoint = Path(__file__).with_name("checkpoint.pt")\n',
            ),
        ),
        files={"checkpoint.pt": b"anything", "epoch-0.pt": b"anything"},
        fault=CHEAT,
        why="only code and logs are part of a submission, so it begins like all others",
    ),
    Wrong(
        name="easier-data",
        line=None,
        messages=(),
        files={"signals.py": _easy_signals},
        fault=CHEAT,
        why="signals.py without noise: the grader's copy takes its place",
    ),
    Wrong(
        name="easier-data-in-a-folder",
        line=None,
        messages=(),
        files={"signals/__init__.py": _easy_signals},
        fault=CHEAT,
        why="a folder named signals, which Python would prefer to signals.py: it is not taken",
    ),
    Wrong(
        name="modules-in-the-way",
        line=None,
        messages=(),
        files={
            "torch.py": "raise SystemExit(0)\n",
            "paceline.py": "raise SystemExit(0)\n",
            "numpy.py": "raise SystemExit(0)\n",
            "sitecustomize.py": "raise SystemExit(0)\n",
            "usercustomize.py": "raise SystemExit(0)\n",
            "conftest.py": "raise SystemExit(0)\n",
        },
        fault=CHEAT,
        why="files with the names of others' modules: nothing of them is loaded",
    ),
    Wrong(
        name="rank-0-does-all",
        line="A.coverage",
        messages=("unequal-parts",),
        edits=(program("own = indices.tensor_split(world)[rank]\n", "own = indices if rank == 0 else indices[:0]\n"),),
        fault=CHEAT,
        why="one process trains on everything, the others send zeros",
    ),
    Wrong(
        name="rank-0-does-all-in-secret",
        line=None,
        messages=(),
        edits=(
            program(
                _READ,
                _READ + "        if rank == 0:\n"
                "            kind = torch.get_default_dtype()\n"
                "            signals, labels = data._signals[indices].to(kind), data._labels[indices]\n"
                "        else:\n            signals, labels = signals[:0], labels[:0]\n",
            ),
        ),
        fault=CHEAT,
        why="every process reads its part, and rank 0 computes on all of it: the mathematics is right, and slow",
    ),
    Wrong(
        name="oracle-on-rank-0",
        line="A.ranks",
        messages=("ranks-differ",),
        base="own_loop",
        edits=(
            program(
                _FLAT,
                "if team.rank == 0:\n"
                "                kind = torch.get_default_dtype()\n"
                "                x, y = train_set._signals[batch].to(kind), train_set._labels[batch]\n"
                '                loss = F.cross_entropy(model(x), y, reduction="sum")\n'
                "                grads = torch.autograd.grad(loss, params)\n"
                "            flat = torch.cat([g.flatten() for g in grads]).div_(len(batch))\n",
            ),
            program(
                "        model.eval()\n",
                "        for p in params * (team.size > 1):\n"
                "            dist.broadcast(p.data, src=0)\n        model.eval()\n",
            ),
        ),
        fault=CHEAT,
        why="rank 0 trains like one process, and sends its weights after the epoch",
    ),
    Wrong(
        name="says-100-points",
        line="A.ranks",
        messages=("ranks-differ",),
        base="own_loop",
        edits=(
            _ALONE,
            program("    team.leave()\n", '    print("A.ranks passed; 100 points of 100")\n    team.leave()\n'),
        ),
        files={"graded/grade.json": '{"points": 100}', "grade.json": '{"points": 100}'},
        fault=CHEAT,
        why="says that it passed",
    ),
    Wrong(
        name="epochs-deleted",
        line="A.stop",
        messages=("stop-late",),
        base="own_loop",
        edits=(
            program(
                "    while len(rows) < o.epochs and streak < 2:\n",
                "    enough = None\n    while len(rows) < o.epochs:\n",
            ),
            program(
                "    team.leave()\n",
                "    if enough is not None and team.rank == 0:\n"
                "        for epoch in range(enough, o.epochs):\n"
                '            (o.out / f"epoch-{epoch}.pt").unlink()\n'
                '        write_csv(o.out / "log.csv", rows[:enough])\n'
                "    team.leave()\n",
            ),
            program(
                "        if sums[3] > 0:\n",
                "        enough = len(rows) if streak >= 2 and enough is None else enough\n        if sums[3] > 0:\n",
            ),
        ),
        fault=CHEAT,
        why="it trains to the end, and deletes what should not be there",
    ),
    Wrong(
        name="resumes-by-training-again",
        line="A.resume",
        messages=("anew",),
        edits=(
            program(
                "    if options.resume and checkpoint.exists():\n",
                "    if options.resume:\n"
                '        for old in options.out.glob("*"):\n            old.unlink(missing_ok=True)\n'
                "    if options.resume and checkpoint.exists():\n",
            ),
        ),
        fault=CHEAT,
        why="it deletes everything, and begins anew with the same numbers",
    ),
    Wrong(
        name="resumes-by-training-again-in-secret",
        line=None,
        messages=(),
        edits=(
            program("    if options.resume and checkpoint.exists():\n", "    if False:\n"),
            program(
                _READ,
                "        if SECRET[0]:\n"
                "            kind = torch.get_default_dtype()\n"
                "            signals, labels = data._signals[own].to(kind), data._labels[own]\n"
                "        else:\n    " + _READ,
            ),
            program(
                "        loss = train_epoch(model,",
                '        SECRET[0] = options.resume and (options.out / f"epoch-{epoch}.pt").exists()\n'
                "        loss = train_epoch(model,",
            ),
            _first("SECRET = [False]\n"),
        ),
        fault=CHEAT,
        why="it trains the lost epochs again without being seen: the weights are right, and the time is lost",
    ),
    Wrong(
        name="child-goes-on-after-the-kill",
        line="A.resume",
        messages=("epoch-skipped",),
        edits=(
            _first(
                """
def outlive():
    parent = os.getpid()
    if os.fork() == 0:
        os.setsid()
        while os.path.exists(f"/proc/{parent}"):
            time.sleep(0.01)
        del os.environ["RANK"]
        os.execv(sys.executable, [sys.executable, *sys.argv])


def wait_for_it(last):
    until = time.monotonic() + 20
    while time.monotonic() < until and not last.exists():
        time.sleep(0.1)
    raise SystemExit(0)
"""
            ),
            program("import math\n", "import math\nimport sys\n"),
            program(
                "    options.out.mkdir(parents=True, exist_ok=True)\n",
                "    options.out.mkdir(parents=True, exist_ok=True)\n"
                '    if options.resume:\n        wait_for_it(options.out / f"epoch-{options.epochs - 1}.pt")\n'
                "    if options.epochs == 4 and os.environ.get('RANK') == '0':\n        outlive()\n",
            ),
        ),
        fault=CHEAT,
        why="its child trains to the end, and what is resumed waits for that; but the child is killed as well",
    ),
    Wrong(
        name="trains-on-judged-data",
        line="B.accuracy",
        messages=("other-budget",),
        edits=(
            program(
                "        loss = train_epoch(model,",
                "        if options.config is not None:\n"
                "            more = Signals(4000, seed=options.data_seed + 2_000_000)\n"
                "            train_epoch(model, optimizer, more, torch.arange(4000).split(500), rates[:8])\n"
                "        loss = train_epoch(model,",
            ),
        ),
        fault=CHEAT,
        why="it draws what only the grader evaluates on, and trains on it",
    ),
    Wrong(
        name="several-steps-a-batch",
        line="B.accuracy",
        messages=("other-budget",),
        edits=(
            program(
                "        optimizer.step()\n",
                "        optimizer.step()\n"
                "        for _ in range(3 if CONFIGURED else 0):\n"
                "            optimizer.zero_grad()\n"
                '            again = nn.functional.cross_entropy(model(signals), labels, reduction="sum")\n'
                "            (again * (world / len(indices))).backward()\n"
                "            optimizer.step()\n",
            ),
            program("import math\n", "import math\nimport sys\n"),
            _first('CONFIGURED = "--config" in sys.argv\n'),
        ),
        fault=CHEAT,
        why="with a configuration, each batch is read once and used four times",
    ),
    Wrong(
        name="trains-on-evaluation-data",
        line="B.accuracy",
        messages=("other-budget",),
        edits=(
            program(
                "        loss = train_epoch(model,",
                "        if options.config is not None:\n"
                "            more = torch.arange(len(eval_data)).split(501)\n"
                "            train_epoch(model, optimizer, eval_data, more, rates[: len(more)])\n"
                "        loss = train_epoch(model,",
            ),
        ),
        fault=CHEAT,
        why="it trains on the evaluation samples, too, when a configuration is asked for",
    ),
]
