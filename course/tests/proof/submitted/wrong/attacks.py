"""Attempts to reach what a submission has no business with: the grader, its records, the machine.

Those whose line is None are without effect: they have to pass the gate like any other.
"""

import functools

from course.tests.proof.submissions import CHEAT, REFUSED, Wrong, program

_TOP = "\ndef read_options():\n"
_OWN_TOP = "\ndef parse():\n"
_MAIN = 'if __name__ == "__main__":\n    main()\n'
_FLAT = "flat = team.sum(torch.cat([g.flatten() for g in grads])).div_(len(batch))\n"
_ALONE = program(_FLAT, "flat = torch.cat([g.flatten() for g in grads]).div_(max(1, len(y)))\n")
_WEIGHTS = '            save(network.state_dict(), options.out / f"epoch-{epoch}.pt")\n'


def _at_end(code: str) -> tuple[str, str, str]:
    return program(_MAIN, _MAIN + "".join(f"    {line}\n" for line in code.strip().splitlines()))


def _first(code: str) -> tuple[str, str, str]:
    return program(_TOP, "\n" + code.strip("\n") + "\n\n\ndef read_options():\n")


@functools.cache
def _bytes(count: int) -> str:
    return "# " + "x" * count + "\n"


WRONG = [
    Wrong(
        name="looks-at-the-grader",
        line=None,
        messages=(),
        edits=(
            _first(
                """
def look_around():
    key = os.path.expanduser("~root/.ssh/id_rsa")
    for place in (f"/proc/{os.getppid()}/mem", f"/proc/{os.getppid()}/environ", "/etc/shadow", key):
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
    import paceline_course.assess.box as box

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
        line="A.runs",
        messages=("too-much",),
        edits=(
            program(
                "        csv.writer(file).writerows([COLUMNS, *rows])\n",
                "        csv.writer(file).writerows([COLUMNS, *rows])\n"
                '        file.write("0,0,0,0,0,0,0,0\\n" * 5_000_000)\n',
            ),
        ),
        fault=CHEAT,
        why="a log of 80 MB",
    ),
    Wrong(
        name="weights-are-huge",
        line="A.runs",
        messages=("no-weights",),
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
        messages=("network",),
        edits=(
            _first("import socket\n"),
            program(
                "    options = read_options()\n    torch.set",
                # A name that nobody may have: what it is told does not depend on the network of this machine.
                '    socket.create_connection(("somebody.invalid", 80), timeout=2).close()\n'
                "    options = read_options()\n    torch.set",
            ),
        ),
        fault=CHEAT,
        why="asks somebody outside",
    ),
    Wrong(
        name="fork-bomb",
        line="A.runs",
        messages=("hang",),
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
        messages=("memory",),
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
        messages=("too-much",),
        edits=(
            _at_end(
                """
for number in range(25_000):
    Path(f"file-{os.getpid()}-{number}").touch()
"""
            ),
        ),
        fault=CHEAT,
        why="twenty-five thousand files of each process",
    ),
    Wrong(
        name="prints-without-end",
        line="A.runs",
        messages=("too-much",),
        edits=(_at_end('while True:\n    print("x" * 1_000_000)\n'),),
        patience=0.5,
        fault=CHEAT,
        why="output without end",
    ),
    Wrong(
        name="kills-everybody",
        attacks_user=True,
        line="A.runs",
        messages=("died",),
        edits=(_at_end("os.kill(-1, 9)"),),
        fault=CHEAT,
        why="kill -9 of all that it may kill",
    ),
    Wrong(
        name="kills-its-parent",
        line="A.runs",
        messages=("raised",),
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
        messages=("unequal",),
        base="own_loop",
        edits=(
            _ALONE,
            program(
                _MAIN,
                # By one process, after the barrier at the end: two would read what the other one has just emptied.
                _MAIN + "    for each in Path('seen').glob('steps-*.txt') if os.environ.get('RANK') == '0' else ():\n"
                "        each.write_text('0123456789abcdef\\n' * len(each.read_text().splitlines()))\n",
            ),
        ),
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
                'watch = sys.modules["paceline_course.assess.submission_process"]\n'
                "watch._Reads.note = lambda *a, **k: None\n"
                "watch._Steps._after = lambda *a, **k: None\n\n\ndef parse():\n",
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
        name="link-handed-in",
        line=REFUSED,
        messages=("helper.py is no ordinary file",),
        links={"helper.py": "/etc/passwd"},
        fault=CHEAT,
        why="a link among the files",
    ),
    Wrong(
        name="large-file-handed-in",
        line=REFUSED,
        messages=("memory.py is larger than 1,048,576 bytes",),
        files={"memory.py": functools.partial(_bytes, 2 << 20)},
        fault=CHEAT,
        why="two megabytes of code",
    ),
    Wrong(
        name="many-files-handed-in",
        line=REFUSED,
        messages=("more than 200 files",),
        files={f"part_{number}.py": "x = 1\n" for number in range(300)},
        fault=CHEAT,
        why="three hundred files",
    ),
    Wrong(
        name="no-configuration",
        line=REFUSED,
        messages=("chosen is '../adam'",),
        edits=(("config.toml", 'chosen = "adam"', 'chosen = "../adam"'),),
        fault=CHEAT,
        why="the chosen run is none of the runs",
    ),
    Wrong(
        name="runs-with-paths-as-names",
        line=REFUSED,
        messages=("name is '../../one-device'",),
        edits=(("config.toml", 'name = "one-device"', 'name = "../../one-device"'),),
        fault=CHEAT,
        why="a name that leads out of the folder",
    ),
    Wrong(
        name="epochs-without-end",
        line=REFUSED,
        messages=("run long: epochs is 1000000",),
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
        messages=("config.toml is no TOML",),
        files={"config.toml": "a = " + "[" * 100_000},
        fault=CHEAT,
        why="brackets without end",
    ),
]
