"""Attempts to get points without the work, and to reach what a submission has no business with.

Those whose line is None are without effect, or lead to what an honest submission leads to: they have to pass the gate,
or the grader would be wrong about honest people, too.
"""

import base64
import functools
import io

from paceline.learn.assess.proof import CHEAT, REFUSED, Wrong, program

_TOP = "\ndef read_options():\n"
_OWN_TOP = "\ndef parse():\n"
_MAIN = 'if __name__ == "__main__":\n    main()\n'
_FLAT = "flat = team.sum(torch.cat([g.flatten() for g in grads])).div_(len(batch))\n"
_ALONE = program(_FLAT, "flat = torch.cat([g.flatten() for g in grads]).div_(max(1, len(y)))\n")
_READ = (
    "        signals, labels = data.batch(own.tolist())  # a list of plain numbers is read much faster than a tensor\n"
)
_WEIGHTS = '            save(network.state_dict(), options.out / f"epoch-{epoch}.pt")\n'
_NETWORK = "    network = make_model(options.variant, options.seed)\n"


def _at_end(code: str) -> tuple[str, str, str]:
    return program(_MAIN, _MAIN + "".join(f"    {line}\n" for line in code.strip().splitlines()))


def _first(code: str) -> tuple[str, str, str]:
    return program(_TOP, "\n" + code.strip("\n") + "\n\n\ndef read_options():\n")


@functools.cache
def _easy_signals() -> str:
    from paceline.learn.assess.kit import kit_folder

    return (kit_folder() / "signals.py").read_text().replace("NOISE = 0.55", "NOISE = 0.0")


@functools.cache
def _trained_weights() -> str:
    """A module with the weights of a training, 8 bits each."""
    import torch
    from torch.nn import functional

    from paceline.learn.assess.kit import signals

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


@functools.cache
def _bytes(count: int) -> str:
    return "# " + "x" * count + "\n"


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
        messages=("wrong-loss", "own-loss"),
        edits=(program("loss, seconds = loss / len(train_data), ", "loss, seconds = 2.0 / (epoch + 1), "),),
        fault=CHEAT,
        why="a loss that falls so beautifully",
    ),
    Wrong(
        name="weights-in-the-code",
        line="B.accuracy",
        messages=("weights-from-elsewhere", "other-start"),
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
        messages=("ranks-differ", "steps-differ"),
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
        name="looks-at-the-grader",
        line=None,
        messages=(),
        edits=(
            _first(
                """
def look_around():
    for place in (f"/proc/{os.getppid()}/mem", f"/proc/{os.getppid()}/environ", "/etc/shadow", "/root/.ssh/id_rsa"):
        try:
            with open(place, "rb") as file:
                file.read(1)
        except OSError:
            continue
        print("open:", place)
        raise SystemExit(3)
"""
            ),
            program(
                "    options = read_options()\n    torch.set",
                "    look_around()\n    options = read_options()\n    torch.set",
            ),
        ),
        fault=CHEAT,
        why="looks for what the grader knows, in its memory and in files: nothing is open",
    ),
    Wrong(
        name="changes-the-grader",
        line=None,
        messages=(),
        edits=(
            _first(
                """
def change():
    import paceline.learn.assess.box as box

    places = [Path(box.__file__), Path(box.__file__).parent / "new.py", Path(torch.__file__), Path(os.__file__)]
    for place in places:
        try:
            with place.open("a") as file:
                file.write("")
        except OSError:
            continue
        print("writable:", place)
        raise SystemExit(3)
"""
            ),
            program(
                "    options = read_options()\n    torch.set",
                "    change()\n    options = read_options()\n    torch.set",
            ),
        ),
        fault=CHEAT,
        why="tries to write into the installed packages: it cannot",
    ),
    Wrong(
        name="pickle-bomb",
        line="A.runs",
        messages=("no-weights",),
        edits=(
            _first(
                """
class Bomb:
    def __reduce__(self):
        return os.mkdir, ("/tmp/paceline-proof-bomb",)
"""
            ),
            program(_WEIGHTS, _WEIGHTS.replace("network.state_dict()", '{"first.weight": Bomb()}')),
        ),
        fault=CHEAT,
        why="the file of weights runs code when it is read without weights_only",
    ),
    Wrong(
        name="weights-are-a-link",
        line="A.runs",
        messages=("no-weights",),
        edits=(program(_WEIGHTS, '            os.symlink("/etc/passwd", options.out / f"epoch-{epoch}.pt")\n'),),
        fault=CHEAT,
        why="a link to a file of the grader's machine",
    ),
    Wrong(
        name="log-is-a-pipe",
        line="A.runs",
        messages=("no-log",),
        edits=(
            program(
                '            write_log(options.out / "log.csv", rows)\n',
                '            if epoch == 0:\n                os.mkfifo(options.out / "log.csv")\n',
            ),
        ),
        fault=CHEAT,
        why="whoever reads a pipe waits for ever",
    ),
    Wrong(
        name="log-is-huge",
        line="A.numbers",
        messages=("lines", "columns", "no-log", "too-much", "died", "left"),
        edits=(
            program(
                "        csv.writer(file).writerows([COLUMNS, *rows])\n",
                "        csv.writer(file).writerows([COLUMNS, *rows])\n"
                '        file.write("0,0,0,0,0,0,0,0\\n" * 5_000_000)\n',
            ),
        ),
        also=("A.runs",),
        fault=CHEAT,
        why="a log of 80 MB",
    ),
    Wrong(
        name="weights-are-huge",
        line="A.runs",
        messages=("no-weights", "too-much"),
        edits=(
            program(
                _WEIGHTS,
                _WEIGHTS.replace("network.state_dict()", '{**network.state_dict(), "x": torch.zeros(8_000_000)}'),
            ),
        ),
        fault=CHEAT,
        why="weights of 64 MB",
    ),
    Wrong(
        name="busy-process-left",
        line="A.runs",
        messages=("process-left",),
        edits=(
            _at_end(
                """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            pass
    os._exit(0)
"""
            ),
        ),
        fault=CHEAT,
        why="a process that keeps a core busy while the reference is measured",
    ),
    Wrong(
        name="network",
        line="A.runs",
        messages=("network", "raised"),
        edits=(
            _first("import socket\n"),
            program(
                "    options = read_options()\n    torch.set",
                '    socket.create_connection(("192.0.2.1", 80), timeout=2).close()\n'
                "    options = read_options()\n    torch.set",
            ),
        ),
        fault=CHEAT,
        why="asks somebody outside",
    ),
    Wrong(
        name="fork-bomb",
        line="A.runs",
        messages=("hang", "died", "raised", "memory", "left"),
        edits=(
            program(
                "    options = read_options()\n    torch.set",
                "    while True:\n        try:\n            os.fork()\n"
                "        except OSError:\n            time.sleep(0.05)\n"
                "    options = read_options()\n    torch.set",
            ),
        ),
        patience=0.2,
        fault=CHEAT,
        why="processes without end",
    ),
    Wrong(
        name="memory-bomb",
        line="A.runs",
        messages=("memory", "died"),
        edits=(
            program(
                "    options = read_options()\n    torch.set",
                "    much = []\n    while True:\n        much.append(bytearray(1 << 26))\n"
                "    options = read_options()\n    torch.set",
            ),
        ),
        fault=CHEAT,
        why="memory without end",
    ),
    Wrong(
        name="file-bomb",
        line="A.runs",
        messages=("too-much", "raised", "no-log", "hang"),
        edits=(
            _at_end(
                """
for number in range(100_000):
    Path(f"file-{os.getpid()}-{number}").touch()
"""
            ),
        ),
        fault=CHEAT,
        why="a hundred thousand files of each process",
    ),
    Wrong(
        name="prints-without-end",
        line="A.runs",
        messages=("too-much", "raised", "hang", "died"),
        edits=(_at_end('while True:\n    print("x" * 1_000_000)\n'),),
        patience=0.5,
        fault=CHEAT,
        why="output without end",
    ),
    Wrong(
        name="kills-everybody",
        line="A.runs",
        messages=("died", "left", "raised"),
        edits=(_at_end("os.kill(-1, 9)"),),
        fault=CHEAT,
        why="kill -9 of all that it may kill",
    ),
    Wrong(
        name="kills-its-parent",
        line="A.runs",
        messages=("raised", "died"),
        edits=(_at_end("os.kill(os.getppid(), 9)"),),
        fault=CHEAT,
        why="kill -9 of whoever started it",
    ),
    Wrong(
        name="ignores-signals",
        line="A.runs",
        messages=("hang",),
        edits=(
            _at_end(
                """
import signal
for number in (1, 2, 3, 10, 12, 15):
    signal.signal(number, signal.SIG_IGN)
while True:
    pass
"""
            ),
        ),
        patience=0.2,
        fault=CHEAT,
        why="does not end, and hears no signal",
    ),
    Wrong(
        name="everything-is-equal",
        line="A.ranks",
        messages=("ranks-differ",),
        base="own_loop",
        edits=(
            _ALONE,
            program(
                _OWN_TOP,
                "\nimport numpy\n\ntorch.equal = torch.allclose = lambda *a, **k: True\n"
                "numpy.allclose = numpy.array_equal = torch.equal\n"
                "torch.testing.assert_close = lambda *a, **k: None\n\n\ndef parse():\n",
            ),
        ),
        fault=CHEAT,
        why="in its process everything is equal to everything; but nothing is compared there",
    ),
    Wrong(
        name="records-rewritten",
        line="A.oracle",
        messages=("unequal", "steps-differ", "ranks-differ"),
        base="own_loop",
        edits=(
            _ALONE,
            program(
                _MAIN,
                _MAIN + "    for each in Path('seen').glob('steps-*.txt'):\n"
                "        each.write_text('0123456789abcdef\\n' * len(each.read_text().splitlines()))\n",
            ),
        ),
        also=("A.ranks",),
        fault=CHEAT,
        why="what was noted of the steps is rewritten; the saved weights tell",
    ),
    Wrong(
        name="records-not-made",
        line="A.coverage",
        messages=("not-read",),
        base="own_loop",
        edits=(
            _ALONE,
            program(
                _OWN_TOP,
                "\nimport sys\n\n"
                'sys.modules["paceline.learn.assess.inside"]._Reads.note = lambda *a, **k: None\n'
                'sys.modules["paceline.learn.assess.inside"]._Steps._after = lambda *a, **k: None\n\n\ndef parse():\n',
            ),
        ),
        fault=CHEAT,
        why="what notes the readings is switched off",
    ),
    Wrong(
        name="modules-replaced",
        line="A.ranks",
        messages=("ranks-differ",),
        base="own_loop",
        edits=(
            _ALONE,
            program(
                _OWN_TOP,
                "\nimport sys\n\nfor name in list(sys.modules):\n"
                '    if name.startswith("paceline"):\n        sys.modules[name] = None\n\n\ndef parse():\n',
            ),
        ),
        fault=CHEAT,
        why="the grader's modules are taken away, in its own process",
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
        messages=("anew", "not-resumed", "resume-log", "no-weights", "process-left", "resume-differs", "hang", "left"),
        edits=(
            program("    if options.resume and checkpoint.exists():\n", "    if False:\n"),
            _first(
                """
def outlive():
    parent = os.getpid()
    if os.fork() == 0:
        os.setsid()
        while os.path.exists(f"/proc/{parent}"):
            time.sleep(0.01)
        os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
        os.execv(sys.executable, [sys.executable, *sys.argv])
"""
            ),
            program("import math\n", "import math\nimport sys\n"),
            program(
                "    options.out.mkdir(parents=True, exist_ok=True)\n",
                "    options.out.mkdir(parents=True, exist_ok=True)\n"
                "    if options.epochs == 4 and os.environ.get('RANK') == '0':\n        outlive()\n",
            ),
        ),
        fault=CHEAT,
        patience=0.5,
        why="a child of it goes on when it is killed; it is killed as well",
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
    Wrong(
        name="link-handed-in",
        line=REFUSED,
        messages=("no ordinary file",),
        links={"helper.py": "/etc/passwd"},
        fault=CHEAT,
        why="a link among the files",
    ),
    Wrong(
        name="large-file-handed-in",
        line=REFUSED,
        messages=("is larger than",),
        files={"memory.py": functools.partial(_bytes, 2 << 20)},
        fault=CHEAT,
        why="two megabytes of code",
    ),
    Wrong(
        name="many-files-handed-in",
        line=REFUSED,
        messages=("were handed in",),
        files={f"part_{number}.py": "x = 1\n" for number in range(300)},
        fault=CHEAT,
        why="three hundred files",
    ),
    Wrong(
        name="no-configuration",
        line=REFUSED,
        messages=("chosen is",),
        edits=(("config.toml", 'chosen = "adam"', 'chosen = "../adam"'),),
        fault=CHEAT,
        why="the chosen run is none of the runs",
    ),
    Wrong(
        name="runs-with-paths-as-names",
        line=REFUSED,
        messages=("name is",),
        edits=(("config.toml", 'name = "one-device"', 'name = "../../one-device"'),),
        fault=CHEAT,
        why="a name that leads out of the folder",
    ),
    Wrong(
        name="epochs-without-end",
        line=REFUSED,
        messages=("epochs is",),
        edits=(
            ("config.toml", "workers = 1\n", "workers = 1\nnote = 1e400\n"),
            (
                "config.toml",
                'optimizer = "adam"',
                'optimizer = "adam"\n\n[[runs]]\nname = "long"\nworkers = 2\nbatch = 512\nepochs = 1_000_000',
            ),
        ),
        fault=CHEAT,
        why="a million epochs",
    ),
    Wrong(
        name="configuration-that-is-too-deep",
        line=REFUSED,
        messages=("no TOML", "is larger"),
        files={"config.toml": "a = " + "[" * 100_000},
        fault=CHEAT,
        why="brackets without end",
    ),
]
