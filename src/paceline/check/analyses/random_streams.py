"""Random numbers of a script: where its generators are seeded, whether ranks get equal seeds, and what it draws."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from paceline.check.analyses.rank_shares import arguments_for, is_run, rank_term, terms_of
from paceline.check.analyses.rank_tests import RankKind, Ranks
from paceline.check.analyses.script import Script
from paceline.syntax.child_nodes import walk
from paceline.syntax.program import CallSite
from paceline.syntax.reaching_definitions import Kind
from paceline.syntax.values import Literal, Located, Object

_TORCH, _NUMPY, _PYTHON = "torch", "numpy", "random"
_SEEDS: dict[str, tuple[str, ...]] = {
    "torch.manual_seed": (_TORCH,),
    "torch.random.manual_seed": (_TORCH,),
    "torch.cuda.manual_seed": (_TORCH,),
    "torch.cuda.manual_seed_all": (_TORCH,),
    "numpy.random.seed": (_NUMPY,),
    "random.seed": (_PYTHON,),
    "lightning.seed_everything": (_TORCH, _NUMPY, _PYTHON),
    "lightning.fabric.seed_everything": (_TORCH, _NUMPY, _PYTHON),
    "lightning.Fabric.seed_everything": (_TORCH, _NUMPY, _PYTHON),
    "lightning.fabric.utilities.seed.seed_everything": (_TORCH, _NUMPY, _PYTHON),
    "accelerate.utils.set_seed": (_TORCH, _NUMPY, _PYTHON),
    "transformers.set_seed": (_TORCH, _NUMPY, _PYTHON),
    "transformers.trainer_utils.set_seed": (_TORCH, _NUMPY, _PYTHON),
}
"""Functions that seed, with the libraries whose generators they seed."""
_UNKNOWN_SEEDS = ("seed_everything", "set_seed", "seed_all", "set_random_seed", "init_seeds", "random_seed", "fix_seed")
"""Names of functions of other packages that seed in a way that reading does not show."""

_DRAWS: dict[str, str] = {
    **{
        f"torch.{name}": _TORCH
        for name in (
            "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli",
            "multinomial", "poisson",
        )
    },
    **{
        f"numpy.random.{name}": _NUMPY
        for name in (
            "rand", "randn", "randint", "random", "permutation", "shuffle", "choice", "normal", "uniform", "beta",
            "random_sample", "binomial", "poisson", "standard_normal", "exponential",
        )
    },
    **{
        f"random.{name}": _PYTHON
        for name in (
            "random", "randint", "uniform", "choice", "choices", "sample", "shuffle", "gauss", "randrange",
            "betavariate", "normalvariate", "getrandbits",
        )
    },
}  # fmt: skip
"""Functions that draw from the global generator of a library, and the library."""


class Equality(enum.Enum):
    """How the global generator of a library compares between ranks."""

    UNSEEDED = "unseeded"
    """Each process starts from a random state."""
    EQUAL = "equal"
    DIFFERENT = "different"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Seeding:
    """A call that seeds global generators.

    Attributes:
        libraries: those whose generators it seeds.
        kind: the rank that is a term of the seed.
        random: the seed comes from the clock, the process id or the system.
    """

    site: CallSite
    libraries: tuple[str, ...]
    kind: RankKind
    random: bool


def seedings(script: Script) -> list[Seeding]:
    """Calls that seed, on all ranks that the script starts."""
    found = []
    for name, libraries in _SEEDS.items():
        for site in script.calls(name):
            given = script.argument(site.node, "seed", 0).given
            node = given[0].node if given else None
            if not is_run(script, site.function):
                continue
            for seed in _seeds(script, node):
                random = seed is None or _random(script, seed)
                found.append(Seeding(site, libraries, _kind(script, seed), random))
    return sorted(found, key=lambda each: each.site.node.lineno)


def _kind(script: Script, seed: ast.expr | None) -> RankKind:
    """The rank in a seed; the name of the host counts as the number of the node."""
    found = rank_term(script, seed)
    if found is RankKind.NONE and seed is not None:
        names = [name for each in terms_of(script, seed) for name in _names(script, each)]
        return RankKind.NODE if any(name in _HOSTS for name in names) else found
    return found


_HOSTS = ("socket.gethostname", "socket.getfqdn", "platform.node", "os.uname")


def _seeds(script: Script, node: ast.expr | None, depth: int = 3) -> Iterator[ast.expr | None]:
    """Seeds that a function of the script is called with: `set_seed(3)` and `set_seed(3 + rank)`."""
    given: list[ast.expr] = []
    if isinstance(node, ast.Name) and depth:
        for binding, function in script.program.evaluator.bindings(node):
            if binding.kind is Kind.PARAMETER:
                given += arguments_for(script, function, binding.name, default=False)
    if not given:
        yield node
    for each in given:
        yield from _seeds(script, each, depth - 1)


_SOURCES = ("time.", "os.getpid", "os.urandom", "secrets.", "random.", "numpy.random.", "torch.seed", "datetime.",
            "uuid.", "torch.initial_seed", "torch.randint")  # fmt: skip


def _random(script: Script, node: ast.expr) -> bool:
    """True if a seed comes from the clock, the process or a generator."""
    return any(name.startswith(_SOURCES) for each in terms_of(script, node) for name in _names(script, each))


def differs_by_chance(script: Script, node: ast.expr) -> str:
    """The function that makes a number differ between processes; empty if there is none."""
    certain = ("time.", "os.getpid", "os.urandom", "secrets.", "torch.seed", "datetime.", "uuid.")
    for each in terms_of(script, node):
        for name in _names(script, each):
            if name.startswith(certain):
                return name
            library = _DRAWS.get(name)
            if library is not None and equality(script, library) in (Equality.UNSEEDED, Equality.DIFFERENT):
                return name
    return ""


def _names(script: Script, node: ast.AST) -> list[str]:
    """Canonical names of calls within an expression."""
    return [name for at in walk(node) if isinstance(at, ast.Call) for name in script.program.callee_names(at)]


def equality(script: Script, library: str) -> Equality:
    """How the global generator of a library compares between ranks, over the whole run."""
    found = [
        each for each in seedings(script) if library in each.libraries and script.where(each.site.node) is Ranks.ALL
    ]
    if any(each.kind in (RankKind.GLOBAL, RankKind.LOCAL) or each.random for each in found):
        return Equality.DIFFERENT
    if any(_seeds_unseen(script)):
        return Equality.UNKNOWN
    return Equality.EQUAL if found else Equality.UNSEEDED


def never_equal(script: Script, library: str) -> bool:
    """True if no call gives the global generator of a library the same state on all ranks, at any time."""
    found = [each for each in seedings(script) if library in each.libraries]
    if any(_seeds_unseen(script)):
        return False
    return all(each.random or each.kind in (RankKind.GLOBAL, RankKind.LOCAL) for each in found)


def equal_seed(script: Script, library: str) -> Seeding | None:
    """The call that gives the generator of a library the same state on all ranks, where no other makes it differ."""
    if equality(script, library) is not Equality.EQUAL:
        return None
    found = [
        each for each in seedings(script) if library in each.libraries and script.where(each.site.node) is Ranks.ALL
    ]
    cpu = [each for each in found if "cuda" not in each.site.name]
    return (cpu or found)[-1]


def _of(script: Script, library: str) -> list[Seeding]:
    """Seedings of a library on all ranks."""
    return [
        each for each in seedings(script) if library in each.libraries and script.where(each.site.node) is Ranks.ALL
    ]


def _seeds_unseen(script: Script) -> Iterator[bool]:
    """Calls of functions that seed, and that reading does not lead into."""
    for function in script.program.functions:
        for call in function.calls:
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if name in _UNKNOWN_SEEDS and not script.program.evaluator.callees(call):
                names = script.program.callee_names(call)
                if not any(each in _SEEDS for each in names):
                    yield True


def drawn_from(script: Script, call: ast.Call) -> str:
    """The library from whose global generator a call draws; empty if it draws from none, or from one of its own."""
    if has_generator(script, call):
        return ""
    for name in script.program.callee_names(call):
        if name in _DRAWS:
            return _DRAWS[name]
    return ""


def draws(script: Script, nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.Call, str]]:
    """Calls among nodes that draw from a global generator, with the library."""
    for node in nodes:
        if isinstance(node, ast.Call) and (library := drawn_from(script, node)):
            yield node, library


def generator_seed(script: Script, call: ast.Call | Object) -> ast.expr | None:
    """The seed of the generator that a call is given: `generator=torch.Generator().manual_seed(seed)`."""
    for each in _generators_given(script, call):
        for value in script.values(each.node, each.context):
            if isinstance(value, Object) and value.name.endswith(".manual_seed"):
                given = script.argument(value, "seed", 0).given
                return given[0].node if given else None
            if isinstance(value, Object) and value.name == "torch.Generator":
                return _seeded_later(script, each.node)
    return None


def _generators_given(script: Script, call: ast.Call | Object) -> list[Located]:
    """The argument `generator`, by keyword or by position."""
    found = list(script.argument(call, "generator").given)
    node, context = (call.call, call.context) if isinstance(call, Object) else (call, None)
    for each in node.args:
        names = (value.name for value in script.values(each, context) if isinstance(value, Object))
        if any(name.startswith("torch.Generator") for name in names):
            found.append(Located(each, context))
    return found


def _seeded_later(script: Script, node: ast.expr) -> ast.expr | None:
    """The seed of `generator.manual_seed(seed)` for a generator in a variable."""
    wanted = {value.call for value in script.values(node) if isinstance(value, Object)}
    for site in script.method_calls("manual_seed"):
        receiver = site.node.func.value if isinstance(site.node.func, ast.Attribute) else None
        found = {value.call for value in script.values(receiver) if isinstance(value, Object)}
        if wanted & found and site.node.args:
            return site.node.args[0]
    return None


def generator_of(script: Script, call: ast.Call) -> Object | None:
    """The generator object whose method is called: `rng` of `rng.permutation(n)`."""
    receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
    for value in script.values(receiver):
        if isinstance(value, Object) and value.name in _GENERATORS:
            return value
    return None


_GENERATORS = ("numpy.random.default_rng", "numpy.random.RandomState", "random.Random")


def has_generator(script: Script, call: ast.Call | Object) -> bool:
    """True if a call is given a generator other than None, or may be."""
    if not script.argument(call, "generator").certain:
        return True
    given = _generators_given(script, call)
    return bool(given) and script.program.evaluator.all_of(given) != {Literal(None)}
