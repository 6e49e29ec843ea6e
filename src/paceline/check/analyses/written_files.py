"""Files and directories that a script writes, and how far their names are the same on all ranks."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.check.analyses.framework_names import FABRIC
from paceline.check.analyses.script import Script
from paceline.syntax.module_index import Function, last_name
from paceline.syntax.program import CallSite
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import Context, Literal, Located, Named, Object, Parameter, Part


class Effect(enum.Enum):
    """The effect of a call on its path."""

    WRITE = "writes"
    APPEND = "appends to"
    DIRECTORY = "makes the directory"
    COPY = "copies to"
    RENAME = "renames to"
    READ = "reads"


class Naming(enum.Enum):
    """How a path compares between ranks."""

    SAME = "the same on all ranks"
    PER_RANK = "differs by the rank"
    PER_PROCESS = "from the clock, the process id or a random number"
    TEMPORARY = "a temporary file, or no file"
    UNREAD = "not shown by reading"


@dataclass(frozen=True)
class Write:
    """A call that writes.

    Attributes:
        path: the expression of the file or directory.
    """

    site: CallSite
    effect: Effect
    path: ast.expr


_WRITERS = {
    "torch.save": ("f", 1), "torch.jit.save": ("f", 1), "torch.onnx.export": ("f", 2), "numpy.save": ("file", 0),
    "numpy.savez": ("file", 0), "numpy.savez_compressed": ("file", 0), "numpy.savetxt": ("fname", 0),
    "joblib.dump": ("filename", 1), "cv2.imwrite": ("filename", 0), "imageio.imwrite": ("uri", 0),
    "imageio.imsave": ("uri", 0), "scipy.io.savemat": ("file_name", 0), "scipy.io.wavfile.write": ("filename", 0),
    "matplotlib.pyplot.savefig": ("fname", 0), "matplotlib.pyplot.imsave": ("fname", 0),
    "torchvision.utils.save_image": ("fp", 1), "safetensors.torch.save_file": ("filename", 1),
    "safetensors.torch.save_model": ("filename", 1), "soundfile.write": ("file", 0), "torchaudio.save": ("uri", 0),
}  # fmt: skip
_READERS = {
    "torch.load": ("f", 0), "numpy.load": ("file", 0), "numpy.loadtxt": ("fname", 0), "numpy.memmap": ("filename", 0),
    "pandas.read_csv": ("filepath_or_buffer", 0), "pandas.read_parquet": ("path", 0), "joblib.load": ("filename", 0),
    "safetensors.torch.load_file": ("filename", 0), "datasets.load_from_disk": ("dataset_path", 0),
    "os.listdir": ("path", 0),
}  # fmt: skip
_METHODS = {"to_csv": "path_or_buf", "to_json": "path_or_buf", "to_pickle": "path", "to_parquet": "path",
            "savefig": "fname", "save_pretrained": "save_directory"}  # fmt: skip
_COPIES = ("shutil.copy", "shutil.copyfile", "shutil.copy2", "shutil.copytree")
_RENAMES = ("os.rename", "os.replace", "shutil.move")
_OPENERS = ("builtins.open", "gzip.open", "bz2.open", "lzma.open", "codecs.open", "h5py.File")
_TEMPORARY = ("tempfile.", "io.BytesIO", "io.StringIO")
_UNIQUE = ("time.time", "time.time_ns", "time.strftime", "time.localtime", "time.gmtime", "time.asctime", "time.ctime",
           "time.monotonic", "time.perf_counter", "os.getpid", "uuid.uuid1", "uuid.uuid4")  # fmt: skip
_CLOCK = ("now", "utcnow", "today")
_TRANSPARENT = ("os.", "pathlib.", "builtins.", "argparse.", "json.", "yaml.", "omegaconf.", "time.", "datetime.",
                "copy.", "posixpath.", "functools.", "dataclasses.", "re.",
                "typing.", "transformers.HfArgumentParser")  # fmt: skip
"""Packages whose functions give the same result on all ranks for the same arguments, as far as paths go."""
_TEXT_METHODS = frozenset(
    (
        "format", "join", "strip", "rstrip", "lstrip", "split", "rsplit", "replace", "lower", "upper", "with_suffix",
        "with_name", "with_stem", "joinpath", "get", "expanduser", "resolve", "absolute", "as_posix", "strftime",
        "isoformat", "pop", "parse_args", "parse_known_args", "parse_args_into_dataclasses", "removesuffix",
        "partition", "removeprefix", "rpartition", "zfill", "title", "capitalize", "parse", "timestamp", "open",
        "add_argument", "group", "items", "keys", "values",
    )
)  # fmt: skip


def writes(script: Script) -> list[Write]:
    """Calls of a script that write files or make directories, in the order of the source."""
    found = [
        *_by_function(script),
        *_by_method(script),
        *_opened(script),
        *_directories(script),
    ]
    unique = {each.site.node: each for each in found}
    return sorted(unique.values(), key=lambda each: (each.site.module.path, each.site.node.lineno))


def reads(script: Script) -> list[Write]:
    """Calls of a script that read files."""
    found = [
        read
        for name, (keyword, position) in _READERS.items()
        for read in _with_argument(script, (name,), keyword, position, Effect.READ)
    ]
    for site in script.calls(*_OPENERS):
        path = given(site.node, "file", 0)
        if path is not None and (given(site.node, "mode", 1) is None or mode_of(script, site.node, 1)[:1] == "r"):
            found.append(Write(site, Effect.READ, path))
    for site in script.method_calls("read_text", "read_bytes"):
        if isinstance(site.node.func, ast.Attribute):
            found.append(Write(site, Effect.READ, site.node.func.value))
    return found


def _by_function(script: Script) -> Iterator[Write]:
    for name, (keyword, position) in _WRITERS.items():
        yield from _with_argument(script, (name,), keyword, position, Effect.WRITE)
    yield from _with_argument(script, _COPIES, "dst", 1, Effect.COPY)
    yield from _with_argument(script, _RENAMES, "dst", 1, Effect.RENAME)


def _with_argument(
    script: Script, callees: tuple[str, ...], keyword: str, position: int, effect: Effect
) -> Iterator[Write]:
    for site in script.calls(*callees):
        if (path := given(site.node, keyword, position)) is not None:
            yield Write(site, effect, path)


def _by_method(script: Script) -> Iterator[Write]:
    for site in script.method_calls(*_METHODS):
        method = last_name(site.node.func)
        if any(each.arg in ("is_main_process", "save_function") for each in site.node.keywords):
            continue
        if (path := given(site.node, _METHODS[method], 0)) is not None:
            yield Write(site, Effect.WRITE, path)
    for site in script.method_calls("write_text", "write_bytes"):
        if isinstance(site.node.func, ast.Attribute):
            yield Write(site, Effect.WRITE, site.node.func.value)
    for site in script.method_calls("rename", "replace"):
        if len(site.node.args) == 1 and not site.node.keywords and _on_path(script, site.node):
            yield Write(site, Effect.RENAME, site.node.args[0])
    for site in script.method_calls("save"):
        if any(name.startswith("PIL.") for name in script.program.callee_names(site.node)) and site.node.args:
            yield Write(site, Effect.WRITE, site.node.args[0])


def _on_path(script: Script, call: ast.Call) -> bool:
    """True if a method is one of a `pathlib.Path`."""
    return isinstance(call.func, ast.Attribute) and any(
        isinstance(value, Named) and value.name.startswith("pathlib.")
        for each in script.origins.of(call.func.value)
        if isinstance(each.node, ast.Call)
        for value in script.values(each.node.func, each.context)
    )


def _opened(script: Script) -> Iterator[Write]:
    for site in script.calls(*_OPENERS):
        mode, path = mode_of(script, site.node, 1), given(site.node, "file", 0)
        if path is not None and (effect := _effect_of(mode)) is not None:
            yield Write(site, effect, path)
    for site in script.method_calls("open"):
        func = site.node.func
        if not isinstance(func, ast.Attribute) or any(
            isinstance(each, Named) for each in script.values(func)
        ):  # a function of a module
            continue
        if (effect := _effect_of(mode_of(script, site.node, 0))) is not None:
            yield Write(site, effect, func.value)


def _directories(script: Script) -> Iterator[Write]:
    yield from _with_argument(script, ("os.makedirs", "os.mkdir"), "name", 0, Effect.DIRECTORY)
    for site in script.method_calls("mkdir"):
        own = all(isinstance(each, ast.Constant) for each in site.node.args)  # else a function: `utils.mkdir(path)`
        if (
            own
            and isinstance(site.node.func, ast.Attribute)
            and not any(isinstance(each, Named) for each in script.values(site.node.func))
        ):
            yield Write(site, Effect.DIRECTORY, site.node.func.value)


def given(call: ast.Call, keyword: str, position: int) -> ast.expr | None:
    """An argument as it stands in a call; None also where `*args` hide it."""
    for each in call.keywords:
        if each.arg == keyword:
            return each.value
    if any(isinstance(each, ast.Starred) for each in call.args[: position + 1]):
        return None
    return call.args[position] if len(call.args) > position else None


def mode_of(script: Script, call: ast.Call, position: int) -> str:
    """The mode in which a file is opened; empty if it is not shown."""
    node = given(call, "mode", position)
    values = script.values(node) if node is not None else frozenset()
    texts = [each.value for each in values if isinstance(each, Literal) and isinstance(each.value, str)]
    return texts[0] if len(values) == 1 and texts else ""


def _effect_of(mode: str) -> Effect | None:
    if not mode or not set(mode) <= set("rwaxbtU+"):
        return None
    if "w" in mode or "x" in mode:
        return Effect.WRITE
    return Effect.APPEND if "a" in mode else None


def naming(script: Script, path: ast.expr, context: Context | None) -> Naming:
    """How a path compares between ranks, in one call of the function in which it stands."""
    if script.origins.rest_on_rank(path, context):
        return Naming.PER_RANK
    found = Naming.SAME
    for each in script.origins.of(path, context):
        kind = _naming_of(script, each)
        if kind in (Naming.TEMPORARY, Naming.UNREAD):
            return kind
        if kind is not Naming.SAME:
            found = kind
    return found


def _naming_of(script: Script, each: Located) -> Naming:
    match each.node:
        case ast.Call():
            return _naming_of_call(script, each.node, each.context)
        case ast.Name():
            return _naming_of_name(script, each.node, each.context)
        case ast.Constant(value=str() as text) if text.startswith(("/dev/", "/tmp")) or text == "TMPDIR":
            return Naming.TEMPORARY
        case ast.Attribute(attr="devnull"):
            return Naming.TEMPORARY
        case ast.Await() | ast.Yield() | ast.YieldFrom():
            return Naming.UNREAD
    return Naming.SAME


def _naming_of_call(script: Script, call: ast.Call, context: Context | None) -> Naming:
    for value in script.values(call.func, context):
        name = value.name if isinstance(value, Named | Part) else ""
        if isinstance(value, Named):
            if name.startswith(_TEMPORARY) or name in _OPENERS:
                return Naming.TEMPORARY
            if name in _UNIQUE or (name.startswith("datetime.") and name.rpartition(".")[2] in _CLOCK):
                return Naming.SAME if _only_date(script, call) else Naming.PER_PROCESS
            if not name.startswith(_TRANSPARENT):
                return Naming.UNREAD
    if isinstance(call.func, ast.Attribute):
        values = script.values(call.func, context)
        if any(isinstance(each, Part) or not isinstance(each, Named | Parameter) for each in values):
            method = call.func.attr
            if method in _CLOCK:
                return Naming.SAME if _only_date(script, call) else Naming.PER_PROCESS
            if _is_of_others(script, call, context) and method not in _TEXT_METHODS:
                return Naming.UNREAD
    return Naming.SAME


def _only_date(script: Script, call: ast.Call) -> bool:
    """True if nothing finer than a day is taken from the clock: `datetime.now().strftime("%Y-%m-%d")`, `today()`."""
    if last_name(call.func) == "today" and "datetime.today" not in ast.unparse(call.func):
        return True
    module = script.function_of(call).module
    around = module.parents.get(module.parents.get(call, call), call)
    for each in (call, around):
        if isinstance(each, ast.Call) and last_name(each.func) == "strftime":
            formats = [node.value for node in each.args if isinstance(node, ast.Constant)]
            return bool(formats) and not any(f"%{part}" in str(formats[0]) for part in "HIMSfsXcTRr")
    return False


def made_up(script: Script, path: ast.expr, context: Context | None) -> ast.expr | None:
    """The call in a path that gives each process a value of its own."""
    for each in script.origins.of(path, context):
        if isinstance(each.node, ast.Call) and _naming_of(script, each) is Naming.PER_PROCESS:
            return each.node
    return None


def expects_failure(script: Script, call: ast.Call) -> bool:
    """True if the failure of a call is handled: `except FileExistsError`, `contextlib.suppress`."""
    function = script.function_of(call)
    for at in function.module.ancestors(call):
        if isinstance(at, ast.Try) and at.handlers:
            return True
        if isinstance(at, ast.With) and any("suppress" in ast.unparse(item.context_expr) for item in at.items):
            return True
        if at is function.node:
            break
    return False


def _is_of_others(script: Script, call: ast.Call, context: Context | None) -> bool:
    """True if a call runs no function of the script."""
    return not script.program.evaluator.callees(call, context)


def _naming_of_name(script: Script, node: ast.Name, context: Context | None) -> Naming:
    bindings = script.program.evaluator.bindings(node)
    if script.origins.agreed(node):
        return Naming.SAME
    if not bindings:
        known = any(isinstance(each, Named) for each in script.values(node))
        return Naming.SAME if known else Naming.UNREAD
    for binding, _ in bindings:
        if binding.kind is Kind.OTHER:
            return Naming.UNREAD
        if binding.kind is Kind.ELEMENT and not _counts(script, binding.value, binding.path):
            return Naming.UNREAD
    unread = any(isinstance(each, Parameter) for each in script.values(node, context))
    return Naming.UNREAD if unread else Naming.SAME


def _counts(script: Script, iterable: ast.expr | None, path: tuple[int, ...]) -> bool:
    """True if a loop variable is the same on all ranks: a counter, or an item of a list that stands in the script."""
    if isinstance(iterable, ast.Tuple | ast.List):
        return True
    if not isinstance(iterable, ast.Call):
        return False
    name = last_name(iterable.func)
    if name == "enumerate":
        return path[:1] == (0,) or bool(iterable.args and _counts(script, iterable.args[0], path[1:]))
    if name == "tqdm" and iterable.args:
        return _counts(script, iterable.args[0], path)
    return name in ("range", "trange", "count")


def display(path: ast.expr) -> str:
    """The path as it stands in the script, for a message."""
    text = ast.unparse(path)
    return text if len(text) <= 60 else "the same path"


def opened_by(script: Script, path: ast.expr, context: Context | None) -> bool:
    """True if a path is an open file, so that the call that opened it is the one to report."""
    return any(isinstance(each, Object) and each.name in _OPENERS for each in script.values(path, context))


def function_name(function: Function) -> str:
    """For a message."""
    return "the script" if function.parent is None else f"{function.name}()"


def several_processes(script: Script) -> bool:
    """True if every process of the job runs the script as it stands, with its own files to look after."""
    if "fabric" in script.engines:
        return not any(script.literals(site.node, "devices", 2) == {1} for site in script.calls(*FABRIC))
    return script.plain or "accelerate" in script.engines
