"""Classes of a script: their bases, and what their attributes can be."""

from __future__ import annotations

import ast

from paceline.syntax.evaluates import Evaluates
from paceline.syntax.module_index import Assigned, Class, Function, dotted, last_name
from paceline.syntax.name_bindings import NameBindings
from paceline.syntax.values import ANY, UNKNOWN, ClassValue, FunctionValue, Instance, Named, Part, Value, Values


class ClassMembers:
    """Answers questions about the classes of one script.

    Args:
        evaluator: of the same script.
        names: likewise.
    """

    def __init__(self, evaluator: Evaluates, names: NameBindings) -> None:
        self._evaluator = evaluator
        self._names = names
        self._bases: dict[Class, tuple[list[Class], list[str]]] = {}

    def lineage(self, cls: Class) -> list[Class]:
        """A class and its bases within the script, nearest first."""
        return self._ancestry(cls)[0]

    def external_bases(self, cls: Class) -> list[str]:
        """Canonical names of bases from other packages, of its own bases too."""
        return self._ancestry(cls)[1]

    def _ancestry(self, cls: Class) -> tuple[list[Class], list[str]]:
        if cls not in self._bases:
            self._bases[cls] = ([cls], [])  # of a class that is its own base
            own, external = [cls], []
            for node in cls.node.bases:
                for value in self._evaluator.values(node):
                    if isinstance(value, ClassValue) and value.cls not in own:
                        more, others = self._ancestry(value.cls)
                        own += [each for each in more if each not in own]
                        external += others
                    elif isinstance(value, Named):
                        external.append(value.name)
                    elif value == UNKNOWN and (name := dotted(node)):
                        external.append(name)
            self._bases[cls] = (own, external)
        return self._bases[cls]

    def member(self, base: Instance, name: str) -> Values:
        """An attribute of an object: a method, the value of a property, or what is assigned to it anywhere."""
        found: set[Value] = set()
        for cls in self.lineage(base.cls):
            if name in cls.methods:
                method = cls.methods[name]
                if is_property(method):
                    found |= self._evaluator.returned(method, self._evaluator.context(method, None, None, base))
                else:
                    found.add(FunctionValue(method, base))
                break
            for assigned in cls.attributes.get(name, ()):
                found |= self._assigned(assigned, base)
        found |= self._stored_from_outside(base, name)
        if found:
            return frozenset(found)
        return frozenset({Part(base, name)})

    def class_member(self, cls: Class, name: str) -> Values:
        """An attribute of a class itself."""
        for each in self.lineage(cls):
            if name in each.methods:
                method = each.methods[name]
                return frozenset({FunctionValue(method, ClassValue(cls) if is_classmethod(method) else None)})
            if name in each.attributes:
                return frozenset(
                    value for assigned in each.attributes[name] for value in self._assigned(assigned, Instance(each))
                )
        return ANY

    def _assigned(self, assigned: Assigned, base: Instance) -> Values:
        if assigned.value is None:
            return ANY
        method = self._names.home(assigned.node)
        context = None
        if method.cls is not None:
            call = base.call if method.name == "__init__" else None
            if call is not None or method.name != "__init__":
                context = self._evaluator.context(method, call, base.context, base) if call is not None else None
        return self._evaluator.follow(self._evaluator.values(assigned.value, context), assigned.path)

    def _stored_from_outside(self, base: Instance, name: str) -> Values:
        """`trainer.model = ...` outside of the class."""
        found: set[Value] = set()
        for module in self._names.modules:
            for target in module.stores_by_attribute.get(name, ()):
                statement = module.parents[target]
                if not isinstance(statement, ast.Assign) or dotted(target.value) in ("self", "cls", ""):
                    continue
                owners = self._evaluator.values(target.value)
                if any(isinstance(each, Instance) and each.cls is base.cls for each in owners):
                    found |= self._evaluator.values(statement.value)
        return frozenset(found)


def _decorated(function: Function, *names: str) -> bool:
    return any(last_name(each.func if isinstance(each, ast.Call) else each) in names for each in function.decorators)


def is_property(function: Function) -> bool:
    """True if reading it as an attribute calls it."""
    return _decorated(function, "property", "cached_property", "lazy_property")


def is_static(function: Function) -> bool:
    """True if it is a static method."""
    return _decorated(function, "staticmethod")


def is_classmethod(function: Function) -> bool:
    """True if its first parameter is the class."""
    return _decorated(function, "classmethod")
