"""Layers, parameters and buffers of models, as far as their classes and constructors show them."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from paceline.check.analyses.framework_names import BATCH_NORMS
from paceline.check.analyses.script import Script
from paceline.check.analyses.value_origins import calls_behind
from paceline.check.analyses.wrapped_models import inner_values
from paceline.syntax.module_index import Class, Function
from paceline.syntax.values import ClassValue, Elements, FunctionValue, Instance, Named, Object, Value, Values

LAYERS = tuple(
    f"torch.nn.{name}"
    for name in (
        "Linear", "Bilinear", "LazyLinear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d",
        "ConvTranspose3d", "LayerNorm", "GroupNorm", "RMSNorm", "Embedding", "EmbeddingBag", "LSTM", "GRU", "RNN",
        "LSTMCell", "GRUCell", "RNNCell", "MultiheadAttention", "Transformer", "TransformerEncoder",
        "TransformerEncoderLayer", "TransformerDecoder", "TransformerDecoderLayer", "PReLU", "BatchNorm1d",
        "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "Parameter",
    )
)  # fmt: skip
"""Classes of torch that have parameters, and `nn.Parameter` itself."""
_PACKAGES = ("torchvision.models.", "timm.create_model", "segmentation_models_pytorch.", "efficientnet_pytorch.")
"""Models of other packages."""
_CONTAINERS = ("torch.nn.Sequential", "torch.nn.ModuleList", "torch.nn.ModuleDict")
_MAX_FUNCTIONS = 500


@dataclass
class Structure:
    """The layers of a model.

    Attributes:
        layers: calls that make layers of torch, with the names of their classes.
        made: all calls that make modules of it, those of classes of the script included.
        classes: classes of the script.
        known: nothing in it comes from other packages or from where reading does not show.
    """

    layers: dict[ast.Call, str] = field(default_factory=dict)
    made: set[ast.Call] = field(default_factory=set)
    classes: set[Class] = field(default_factory=set)
    known: bool = True

    def parameters(self) -> set[ast.Call]:
        """Calls that make parameters."""
        return {call for call, name in self.layers.items() if name in LAYERS or name.startswith(_PACKAGES)}

    def batch_norms(self) -> list[ast.Call]:
        """Calls that make BatchNorm layers, in order of the source."""
        found = [call for call, name in self.layers.items() if name in BATCH_NORMS]
        return sorted(found, key=lambda each: each.lineno)


def structure(script: Script, values: Iterable[Value]) -> Structure:
    """The layers of models."""
    walk = _Builder(script)
    for value in values:
        walk.value(value)
    walk.run()
    return walk.found


@lru_cache(maxsize=4)
def wrapped_structure(script: Script) -> Structure:
    """The layers of the models in all wrappers."""
    return structure(script, inner_values(script))


def is_module(script: Script, cls: Class) -> bool:
    """True if a class of the script is a module of torch."""
    return any(
        base.startswith(("torch.nn.", "lightning.LightningModule"))
        for base in script.program.evaluator.external_bases(cls)
    )


class _Builder:
    def __init__(self, script: Script) -> None:
        self.script = script
        self.found = Structure()
        self._functions: set[Function] = set()
        self._queue: list[Function] = []
        self._seen: set[ast.AST] = set()

    def run(self) -> None:
        """Look at the functions and methods that were found; those may lead to others."""
        while self._queue:
            for call in self._queue.pop(0).calls:
                self._call(call)

    def value(self, value: Value) -> None:
        """Look at a module, or at a display of modules, once."""
        place = value.node if isinstance(value, Elements) else value.call if isinstance(value, Instance) else None
        if place is not None:
            if place in self._seen:
                return
            self._seen.add(place)
        if isinstance(value, Instance):
            self._class(value.cls)
            if value.call is not None:
                self.found.made.add(value.call)
                for node in (*value.call.args, *(each.value for each in value.call.keywords)):
                    self._given(self.script.values(node, value.context))
        elif isinstance(value, Object):
            self._object(value)
        elif isinstance(value, Elements):
            for node in value.node.elts:
                self._given(self.script.values(node, value.context))
        else:
            self.found.known = False

    def _given(self, values: Values) -> None:
        """An argument of a constructor: a module, or the class of one."""
        for value in values:
            if isinstance(value, Object) and value.name.startswith("torch.nn."):
                self._object(value)
            elif isinstance(value, Elements) or (isinstance(value, Instance) and is_module(self.script, value.cls)):
                self.value(value)
            elif isinstance(value, ClassValue) and is_module(self.script, value.cls):
                self._class(value.cls)

    def _object(self, value: Object) -> None:
        if value.call in self._seen:
            return
        self._seen.add(value.call)
        self._record(value.call, value.name)
        context = value.context
        if context is not None and context.function.cls is None and value.name in _CONTAINERS:
            self._function(context.function)  # that fills it
        for node in (*value.call.args, *(each.value for each in value.call.keywords)):
            for each in calls_behind(self.script, node, context):
                assert isinstance(each.node, ast.Call)
                self._call(each.node)

    def _record(self, call: ast.Call, name: str) -> None:
        if name.startswith(("torch.nn.", *_PACKAGES)):
            self.found.layers[call] = name
            self.found.made.add(call)
        elif not name.startswith(("torch.", "builtins.", "copy.", "math.", "?")):
            self.found.known = False

    def _class(self, cls: Class) -> None:
        if cls in self.found.classes:
            return
        evaluator = self.script.program.evaluator
        for each in evaluator.lineage(cls):
            self.found.classes.add(each)
            for method in each.methods.values():
                self._function(method)
        if not all(base.startswith(("torch.nn.", "builtins.", "abc.")) for base in evaluator.external_bases(cls)):
            self.found.known = False

    def _function(self, function: Function) -> None:
        if function in self._functions or len(self._functions) > _MAX_FUNCTIONS:
            return
        self._functions.add(function)
        self._queue.append(function)

    def _call(self, call: ast.Call) -> None:
        for value in self.script.values(call.func):
            if isinstance(value, Named):
                self._record(call, value.name)
            elif isinstance(value, ClassValue) and is_module(self.script, value.cls):
                self.found.made.add(call)
                self._class(value.cls)
            elif isinstance(value, FunctionValue) and value.function.cls in (None, *self.found.classes):
                self._function(value.function)


def has_parameters(script: Script, value: Value) -> bool:
    """True if a value certainly is a module or tensor with parameters."""
    return bool(structure(script, [value]).parameters())


def is_layer(script: Script, value: Value) -> bool:
    """True if a value is a module with parameters."""
    made = isinstance(value, Object) and value.name.startswith("torch.nn.")
    if not made and not (isinstance(value, Instance) and is_module(script, value.cls)):
        return False
    return has_parameters(script, value)


def synchronizes_batch_norm(script: Script) -> bool:
    """True if the script uses SyncBatchNorm anywhere."""
    return any(
        "SyncBatchNorm" in module.calls_by_name
        or "convert_sync_batchnorm" in module.calls_by_name
        or "SyncBatchNorm" in module.loads_by_name
        or "convert_syncbn_model" in module.calls_by_name
        for module in script.program.imports.modules
    )


def synchronizes_buffers(script: Script) -> bool:
    """True if the script sends buffers between ranks itself."""
    for site in script.collectives():
        names = {each.func.attr for each in site.function.calls if isinstance(each.func, ast.Attribute)}
        text = ast.unparse(site.node)
        if names & {"buffers", "named_buffers"} or "running_" in text or "buffer" in text:
            return True
    return False
