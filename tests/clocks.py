"""Finds tests that judge the wall clock: an assertion that something was fast, a deadline that a busy machine misses.
And code that reads the wall clock, or measures by it.

Reads sources, imports none of them. It knows the readers of clocks (the functions of `time`, and ours that return their
values), follows a value through assignments, and tells moments from durations.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

#: not a processor's own time, which no neighbour takes
TIME = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
LOOP_TIME = ("loop.time", "get_running_loop().time", "get_event_loop().time")
#: of the loops that are there for it, time is virtual
VIRTUAL = ("tests.contract.virtual", "tests.faults")
#: functions that return their argument
PASSES_ON = ("max", "min", "sum", "abs", "round", "int", "float", "sorted")
#: the argument that is a deadline, by position or by the name `timeout`
DEADLINES: Mapping[str, int | None] = {
    "asyncio.timeout": 0, "asyncio.wait_for": 1, "communicate": None, "result": 0, "run": None, "urlopen": None,
    "wait": None, "process.wait": 0, "HTTPConnection": None,
}  # fmt: skip
GENEROUS_S = 60
#: functions that return the time of day
WALL = {f"time.{name}" for name in ("time", "time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime")}
WALL |= {f"datetime.{name}" for name in ("datetime.now", "datetime.utcnow", "datetime.today", "date.today")}
WALL |= {"controller.base.clock.wall_ms", "controller.base.clock.wall_ms_at"}
#: how a function is called that says it, where one is handed in
WALL_NAMES = {"wall_ms", "wall_clock_ms"}
#: how moments of the wall clock are called in records, lines and events
WALL_MOMENTS = {"at_ms", "from_ms", "to_ms", "since_ms", "claimed_at_ms", "timestamp", *WALL_NAMES}

Imports = Mapping[str, str]


def judgements(modules: Mapping[str, ast.Module], names: set[str]) -> Iterator[str]:
    """The assertions of these modules that fail where a machine is slow."""
    clocks = _clocks(modules)
    for name in sorted(names):
        tree = modules[name]
        said = _Said(name, _imports(tree), clocks)
        said.learn(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert):
                for compared in ast.walk(node.test):
                    if isinstance(compared, ast.Compare) and said.is_haste(compared):
                        yield f"{name}:{node.lineno}: {ast.unparse(compared)}"


def short_deadlines(modules: Mapping[str, ast.Module], names: set[str]) -> Iterator[str]:
    """Waits of these modules that fail after less than a minute. A test that expects the time-out waits for silence."""
    for name in sorted(names):
        tree = modules[name]
        constants = _constants(tree)
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        silent = {id(one) for function in functions if "Timeout" in _words(function) for one in ast.walk(function)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and id(node) not in silent:
                seconds = _seconds(_deadline_of(node), constants)
                if seconds is not None and seconds < GENEROUS_S:
                    yield f"{name}:{node.lineno}: {seconds:g} s"


def wall_readers(modules: Mapping[str, ast.Module], names: set[str]) -> set[str]:
    """Returns those of these modules that read the wall clock themselves, or pass on a function that does."""
    return {
        name
        for name in names
        for imports in (_imports(modules[name]),)
        for node in ast.walk(modules[name])
        if isinstance(node, ast.Name | ast.Attribute) and _resolved(node, imports) in WALL
    }


def measured_by_the_wall(modules: Mapping[str, ast.Module], names: set[str]) -> Iterator[str]:
    """Where one moment of the wall clock is subtracted from another, or compared with one: that is a duration."""
    for name in sorted(names):
        tree = modules[name]
        said = _SaidByTheWall(name, _imports(tree), set())
        said.learn(tree)
        for node in ast.walk(tree):
            if said.is_measured(node):
                yield f"{name}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"


def moments_reckoned_with(modules: Mapping[str, ast.Module], names: set[str]) -> Iterator[str]:
    """Yields the places where values named like moments of the wall clock are added, subtracted or compared."""
    for name in sorted(names):
        for node in ast.walk(modules[name]):
            if any(isinstance(one, ast.Name | ast.Attribute) and _name_of(one) in WALL_MOMENTS for one in _sides(node)):
                yield f"{name}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"


def _resolved(node: ast.expr, imports: Imports) -> str:
    first, dot, rest = ast.unparse(node).partition(".")
    return f"{imports.get(first, '')}{dot}{rest}"


def _sides(node: ast.AST) -> list[ast.expr]:
    """The operands."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return [node.left, node.right]
    if isinstance(node, ast.Compare) and any(isinstance(one, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for one in node.ops):
        return [node.left, *node.comparators]
    return []


def _words(function: ast.AST) -> str:
    called = (node for node in ast.walk(function) if isinstance(node, ast.Name | ast.Attribute))
    return " ".join(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in called
        if not (isinstance(node, ast.Attribute) and node.attr == "timeout")
    )


def _deadline_of(call: ast.Call) -> ast.expr | None:
    dotted = ast.unparse(call.func)
    if dotted.startswith("asyncio.") and dotted not in DEADLINES:
        return None
    key = dotted if dotted in DEADLINES else dotted.rpartition(".")[2]
    if key not in DEADLINES:
        return None
    place = DEADLINES[key]
    if place is not None and len(call.args) > place:
        return call.args[place]
    return next((one.value for one in call.keywords if one.arg == "timeout"), None)


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = node.value
    return found


def _seconds(deadline: ast.expr | None, constants: Mapping[str, ast.expr]) -> float | None:
    if isinstance(deadline, ast.Name):
        deadline = constants.get(deadline.id)
    if isinstance(deadline, ast.Constant) and isinstance(deadline.value, int | float):
        return float(deadline.value)
    return None


def _imports(tree: ast.Module) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.asname or one.name: one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


def _clocks(modules: Mapping[str, ast.Module]) -> set[str]:
    """Dotted names of functions that return a value of a clock."""
    clocks = {f"time.{name}" for name in TIME}
    for name, tree in modules.items():
        said = _Said(name, _imports(tree), clocks)
        clocks |= {
            f"{name}.{function.name}"
            for function in tree.body
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Return) and node.value is not None and said.is_moment(node.value)
        }
    return clocks


class _Said:
    """The values of clocks in a module: moments, and durations between them. By name, in the whole module."""

    def __init__(self, module: str, imports: Imports, clocks: set[str]) -> None:
        self._module, self._imports, self._clocks = module, imports, clocks
        self._moments: set[str] = set()
        self._durations: set[str] = set()
        known = (module, *imports.values())
        self._loop_times: set[str] = set()
        self._is_virtual = any(one.startswith(VIRTUAL) for one in known)

    def learn(self, tree: ast.Module) -> None:
        before = -1
        while before != (before := len(self._moments) + len(self._durations)):
            for node in ast.walk(tree):
                for target, value in _assigned(node):
                    if ast.unparse(value).endswith(LOOP_TIME):
                        self._loop_times.add(ast.unparse(target))
                    elif self.is_duration(value):
                        self._durations.add(_name_of(target))
                    elif self.is_moment(value):
                        self._moments.add(_name_of(target))

    def is_haste(self, compared: ast.Compare) -> bool:
        """Whether a duration has to be small, or a moment early."""
        sides = [compared.left, *compared.comparators]
        for left, operator, right in zip(sides, compared.ops, sides[1:], strict=False):
            small, large = (left, right) if isinstance(operator, ast.Lt | ast.LtE) else (right, left)
            if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and (
                self.is_duration(small) or (self._is_now(small) and self.is_moment(large))
            ):
                return True
        return False

    def is_moment(self, said: ast.expr) -> bool:
        if isinstance(said, ast.Name | ast.Attribute):
            return _name_of(said) in self._moments
        return self._is_now(said) or any(map(self.is_moment, _parts(said)))

    def is_duration(self, said: ast.expr) -> bool:
        if isinstance(said, ast.Name | ast.Attribute):
            return _name_of(said) in self._durations
        if isinstance(said, ast.BinOp) and isinstance(said.op, ast.Sub) and not isinstance(said.right, ast.Constant):
            return self.is_moment(said.left) or self.is_moment(said.right)
        return any(map(self.is_duration, _parts(said)))

    def _is_now(self, said: ast.expr) -> bool:
        if not isinstance(said, ast.Call):
            return False
        dotted = ast.unparse(said.func)
        if dotted.endswith(LOOP_TIME) or dotted in self._loop_times:
            return not self._is_virtual
        first, dot, rest = dotted.partition(".")
        return f"{self._imports.get(first, f'{self._module}.{first}')}{dot}{rest}" in self._clocks


class _SaidByTheWall(_Said):
    """The same of the wall clock alone, also where it is handed in."""

    def is_measured(self, node: ast.AST) -> bool:
        sides = _sides(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return False  # a moment ahead, for people
        return any(map(self.is_moment, sides))

    def _is_now(self, said: ast.expr) -> bool:
        if not isinstance(said, ast.Call):
            return False
        is_handed_in = isinstance(said.func, ast.Attribute | ast.Name) and _name_of(said.func).lstrip("_") in WALL_NAMES
        return is_handed_in or _resolved(said.func, self._imports) in WALL


def _name_of(target: ast.expr) -> str:
    return target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yields each name with its value."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from zip(target.elts, node.value.elts, strict=False)
            else:
                yield target, node.value
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.AugAssign) and node.value is not None:
        yield node.target, node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
        yield from ((node.func.value, one) for one in node.args)


def _parts(said: ast.expr) -> list[ast.expr]:
    """Returns the parts of a value, if it is made by counting and by nothing else."""
    match said:
        case ast.BinOp():
            return [said.left, said.right]
        case ast.UnaryOp():
            return [said.operand]
        case ast.IfExp():
            return [said.body, said.orelse]
        case ast.Subscript():
            return [said.value]
        case ast.NamedExpr():
            return [said.value]
        case ast.List() | ast.Tuple():
            return list(said.elts)
        case ast.Call(func=ast.Name(id=name)) if name in PASSES_ON:
            return list(said.args)
        case ast.ListComp() | ast.GeneratorExp():
            return [said.elt]
    return []
