"""A state dict of the DDP wrapper is loaded into the model without the wrapper.

What it does:
    Looks for a file that holds `state_dict()` of a model in DDP and is loaded into a model that is not wrapped.

Why is this bad:
    Each key of the wrapper's state dict starts with `module.`. A load into the bare model fails, or, with
    `strict=False`, loads nothing at all and says nothing.

Repair:
    Save `model.module.state_dict()`.

Fix safety:
    Only where the script fails to load the one file that it saves: the save takes `model.module.state_dict()`. It is
    safe: no load of the script takes the keys of the wrapper.

Known problems:
    A script that handles the prefix in any way is left alone. Files that other scripts read are not seen.

References:
    F96. https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.check.analyses.checkpoint_contents import checkpoint_entries, saves
from paceline.check.analyses.framework_names import DDP
from paceline.check.analyses.same_file import written_out
from paceline.check.analyses.script import Script
from paceline.check.analyses.written_files import given
from paceline.check.edits import Edit, replace
from paceline.check.rule import Rule, Violation
from paceline.syntax.child_nodes import walk
from paceline.syntax.module_index import last_name
from paceline.syntax.values import Context, Instance, Located, Object

_HANDLES = ("consume_prefix_in_state_dict_if_present", "module.", "lstrip", "removeprefix")


class WrapperKeys(Rule):
    """Keys that start with `module.`."""

    code, name, topic = "DP079", "wrapper-keys", "files"
    faults = ("F96",)
    severity = "error"
    fixes = True
    valid = {
        "the state dict of the inner model": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            torch.save(model.module.state_dict(), "model.pt")
            tuned = nn.Linear(2, 1)
            tuned.load_state_dict(torch.load("model.pt", map_location="cpu"), strict=False)
        """,
        "into a wrapper": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            torch.save({"model": model.state_dict()}, "model.pt")
            model.load_state_dict(torch.load("model.pt", map_location="cpu")["model"])
        """,
        "the prefix is removed": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            torch.save(model.state_dict(), "model.pt")
            tuned = nn.Linear(2, 1)
            state = torch.load("model.pt", map_location="cpu")
            tuned.load_state_dict({key.replace("module.", ""): value for key, value in state.items()})
        """,
        "a teacher beside the wrapped student in one file": """
            dist.init_process_group("gloo")
            student, teacher = DDP(nn.Linear(2, 1)), nn.Linear(2, 1)
            if os.path.exists("last.pt"):
                state = torch.load("last.pt", map_location="cpu")
                student.load_state_dict(state["student"])
                teacher.load_state_dict(state["teacher"])
            if dist.get_rank() == 0:
                torch.save({"student": student.state_dict(), "teacher": teacher.state_dict()}, "last.pt")
        """,
    }
    invalid = {
        "not strict": """
            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            torch.save(model.state_dict(), "model.pt")
            tuned = nn.Linear(2, 1)
            tuned.load_state_dict(torch.load("model.pt", map_location="cpu"), strict=False)  # here
        """,
        "a file for other scripts": """
            def export(model, out):
                torch.save(model.state_dict(), os.path.join(out, "weights.pt"))  # here

            dist.init_process_group("gloo")
            model = DDP(nn.Linear(2, 1))
            if dist.get_rank() == 0:
                export(model, "export")
        """,
        "in functions, with other entries": """
            def save(model, epoch):
                torch.save({"model": model.state_dict(), "epoch": epoch}, "last.pt")

            def resume():
                net = nn.Linear(2, 1)
                checkpoint = torch.load("last.pt", map_location="cpu")
                net.load_state_dict(checkpoint["model"])  # here
                return DDP(net), checkpoint["epoch"]

            dist.init_process_group("gloo")
            model, epoch = resume() if os.path.exists("last.pt") else (DDP(nn.Linear(2, 1)), 0)
            save(model, epoch + 1)
        """,
        "the wrapper beside a teacher in one file": """
            dist.init_process_group("gloo")
            student, teacher = nn.Linear(2, 1), nn.Linear(2, 1)
            state = torch.load("last.pt", map_location="cpu")
            student.load_state_dict(state["student"])  # here
            teacher.load_state_dict(state["teacher"])
            student = DDP(student)
            if dist.get_rank() == 0:
                torch.save({"student": student.state_dict(), "teacher": teacher.state_dict()}, "last.pt")
        """,
    }

    def check(self, script: Script) -> Iterator[Violation]:
        if not script.plain or not script.wrappers:
            return
        if any(_handles(module.source.text) for module in script.program.imports.modules):
            return
        files = dict(_saved(script))
        found = list(_loads_into_bare(script, files))
        yield from found
        if not found and not _loads_into_wrapper(script):
            for node in sorted({each.node for each in files.values()}, key=lambda each: each.lineno):
                yield Violation(
                    node,
                    "the keys of the saved state dict start with `module.`, which no model without DDP has",
                    "save model.module.state_dict()",
                    severity="info",
                )


@dataclass(frozen=True)
class _Saved:
    """A state dict of a wrapper in a file.

    Attributes:
        node: the save.
        keys: of the dictionary in the file under which it stands; empty if the file holds nothing else, or if they are
            not shown.
    """

    node: ast.Call
    keys: frozenset[str]


def _loads_into_bare(script: Script, files: dict[str, _Saved]) -> Iterator[Violation]:
    """Loads of a file with the prefix into a model that is not wrapped."""
    for site in script.method_calls("load_state_dict"):
        for context in _contexts(script, site.node):
            saved = next((files[each] for each in _loaded(script, site.node, context) if each in files), None)
            if (
                saved is None
                or not _has_key(script, site.node, context, saved.keys)
                or not _is_bare(script, site.node, context)
            ):
                continue
            loose = script.literals(site.node, "strict", 1) == {False}
            yield Violation(
                site.node,
                f"the file holds the state dict of the DDP wrapper (line {saved.node.lineno}), whose keys start with"
                " `module.`; " + ("with strict=False nothing is loaded" if loose else "the load fails"),
                "save model.module.state_dict()",
                edits=_repair(script, site.node, saved.node) if len(files) == 1 else (),
            )
            break


def _repair(script: Script, load: ast.Call, save: ast.Call) -> tuple[Edit, ...]:
    """The state dict of the inner model, if the save itself takes that of a wrapper."""
    if script.function_of(load).module is not script.function_of(save).module or _loads_into_wrapper(script):
        return ()
    if len({each.node for _, each in _saved(script)}) != 1:
        return ()
    states = [each for each in walk(save) if _is_state_dict(each)]
    models = [each.func.value for each in states if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)]
    wrapped = [each for each in models if script.is_wrapped(each)]
    if len(wrapped) != 1 or not isinstance(wrapped[0], ast.Name):
        return ()
    if len(script.program.objects(wrapped[0], DDP)) != len(script.values(wrapped[0])):
        return ()
    return (replace(wrapped[0], f"{wrapped[0].id}.module"),)


def _handles(text: str) -> bool:
    """True if a file does something about the prefix itself; `model.module.state_dict()` is no such thing."""
    return any(f'"{part}' in text or f"'{part}" in text or f"{part}(" in text for part in _HANDLES)


def _contexts(script: Script, node: ast.AST) -> list[Context | None]:
    found: list[Context | None] = []
    for path in script.paths.to(node):
        if path.context not in found:
            found.append(path.context)
    return found or [None]


def _loads_into_wrapper(script: Script) -> bool:
    """True if a model in DDP takes its state from somewhere."""
    return any(
        isinstance(site.node.func, ast.Attribute) and script.is_wrapped(site.node.func.value)
        for site in script.method_calls("load_state_dict")
    )


def _has_key(script: Script, call: ast.Call, context: Context | None, keys: frozenset[str]) -> bool:
    """True if a load takes one of these keys of the file, as far as it shows any."""
    state = given(call, "state_dict", 0)
    taken = {
        each.node.slice.value
        for each in (script.origins.of(state, context) if state is not None else ())
        if isinstance(each.node, ast.Subscript) and isinstance(each.node.slice, ast.Constant)
    }
    return not keys or not taken or bool(keys & taken)


def _saved(script: Script) -> Iterator[tuple[str, _Saved]]:
    """Files that hold the state dict of a wrapper, with the save."""
    for save in saves(script):
        for context in save.contexts:
            if save.file is not None and _holds_wrapper_keys(script, save.saved, context):
                yield written_out(script, save.file, context), _Saved(save.node, _keys(script, save.saved, context))


def _keys(script: Script, saved: ast.expr, context: Context | None) -> frozenset[str]:
    """Keys of a dictionary whose values are state dicts of wrappers."""
    return frozenset(
        key
        for mapping in script.mappings(script.values(saved, context))
        for key, value in (checkpoint_entries(script, mapping) or {}).items()
        if _holds_wrapper_keys(script, value, mapping.context)
    )


def _holds_wrapper_keys(script: Script, saved: ast.expr, context: Context | None) -> bool:
    states = [each for each in script.origins.of(saved, context) if _is_state_dict(each.node)]
    wrapped = [each for each in states if _of_wrapper(script, each)]
    models = [each for each in states if _of_wrapper(script, each) or _is_model(script, each)]
    return bool(wrapped) and len(models) == len(wrapped)


def _is_state_dict(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "state_dict"


def _of_wrapper(script: Script, each: Located) -> bool:
    assert isinstance(each.node, ast.Call)
    assert isinstance(each.node.func, ast.Attribute)
    receiver = each.node.func.value
    values = script.values(receiver, each.context)
    return bool(values) and len(script.program.objects(receiver, DDP, each.context)) == len(values)


def _is_model(script: Script, each: Located) -> bool:
    assert isinstance(each.node, ast.Call)
    assert isinstance(each.node.func, ast.Attribute)
    return script.is_inner(each.node.func.value, each.context)


def _loaded(script: Script, call: ast.Call, context: Context | None) -> Iterator[str]:
    """Files from which the state comes."""
    state = given(call, "state_dict", 0)
    for each in script.origins.of(state, context) if state is not None else ():
        if isinstance(each.node, ast.Call) and last_name(each.node.func) == "load":
            path = given(each.node, "f", 0)
            if path is not None:
                yield written_out(script, path, each.context)


def _is_bare(script: Script, call: ast.Call, context: Context | None) -> bool:
    """True if the model that loads certainly is in no wrapper at this place."""
    assert isinstance(call.func, ast.Attribute)
    values = script.values(call.func.value, context)
    return bool(values) and all(
        (isinstance(each, Instance) or (isinstance(each, Object) and each.name.startswith("torch.nn.")))
        and not (isinstance(each, Object) and each.name in DDP)
        for each in values
    )
