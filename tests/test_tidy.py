"""The rules that a reader of this code may rely on, held against every file. Reads sources, imports none of them."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests import tables
from tests.clocks import judgements, measured_by_the_wall, moments_reckoned_with, short_deadlines, wall_readers

ROOT = Path(__file__).parents[1]
IGNORED = {".git", ".venv", "var", "build", "dist", "__pycache__"}
IGNORED |= {".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache"}

#: the packages: a module imports only from packages that stand before its own, and from its own
#: a tuple is one layer of several packages: a change says its effect on belief, and its writes, tellings and log lines
LAYERS = (
    "controller.base",
    "controller.core",
    "controller.core.belief.kept_states",
    ("controller.core.belief", "controller.core.project", "controller.core.changes"),
    "controller.core.decide.work",
    "controller.core.decide",
    "controller.core.questions",
    "controller.zookeeper",
    "controller.statelog",
    "controller.security",
    "controller.wire",
    "controller.seat",
    "controller.kafka.protocol",
    "controller.tell.dialects",
    "controller.tell",
    "controller.loop",
    "controller.term",
    "controller.api",
    "controller.api.middleware",
    "controller.api.routing",
    "controller.api.v1",
    "controller.api.stream",
    "controller.api.metrics",
    "controller.dashboard",
    "controller.api.serve",
    "controller.kafka.cluster",
    "controller.kafka.server",
    "controller.kafka.takeover",
    "controller.kafka",
    "brokerstub.records",
    "brokerstub",
    "brokerstub.lab",
    "controller.cli",
    "sparkjobs.tables",
    "sparkjobs.records",
    "sparkjobs.history",
    "sparkjobs.parse",
    "sparkjobs.input",
    "sparkjobs.rules",
    "sparkjobs.clocks",
    "sparkjobs.engine.local",
    "sparkjobs.engine.spark",
    "sparkjobs.report",
    "sparkjobs.commands",
    "sparkjobs.sources",
    "sparkjobs",
)
#: these hold nothing but their docstring
SHELLS = ("controller", "sparkjobs.engine")
OURS = ("controller", "brokerstub")
CORE_MAY_IMPORT = {
    "__future__",
    "base64",
    "bisect",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "math",
    "msgspec",
    "operator",
    "random",  # the type of a seeded generator, see below
    "re",
    "typing",
}
#: modules that reach out of the process, or differ from one process to the next
CORE_MAY_NOT_CALL = {"open", "print", "input", "eval", "exec", "compile", "__import__", "hash", "id"}
AIOZK_USERS = {f"controller.zookeeper.{name}" for name in ("client", "session")}
HTTP_CLIENTS = {"controller.wire.client"}
HTTP_SERVERS = ("controller.api", "brokerstub.server", "brokerstub.lab")
AIOHTTP_SERVER_SIDE = ("aiohttp.web", "aiohttp.typedefs", "aiohttp.hdrs", "aiohttp.http_exceptions")
ZOOKEEPER_ADAPTER = (
    "controller.zookeeper.client",
    "controller.zookeeper.session",
    "controller.zookeeper.codec",
)
ZOOKEEPER_WRITERS = {
    "controller.loop.store",  # all that a term decides, fenced
    "controller.seat.claim",  # the seat and the controller epoch
    "controller.zookeeper.layout",  # top-level paths, the chroot and the cluster's id, where they are missing
    "controller.kafka.cluster.presence",  # where a controller is that is no broker
    "controller.kafka.server.scram_users",  # users of SCRAM, fenced
    "brokerstub.registration",
    "brokerstub.notifications",  # of failed directories and ISRs; below level 2.7 the states themselves
}
#: the module that handles a term that ended by a bug, of any kind
CATCHES_EVERYTHING = {"controller.term.daemon"}
#: least number of arguments with which a call is a write to ZooKeeper (`Event.set()` and its like have fewer)
ZOOKEEPER_WRITES = {"transact": 1, "transact_by_aiozk": 1, "create": 2, "set": 3, "delete": 2}
#: a process of its own serves the API and Kafka's protocol beside each other
HTTP_SERVERS += ("controller.kafka",)

#: a file of the tree as prose names it, whole or by the last parts of its path: `loop/store.py`
CITED_FILE = re.compile(r"(?<![\w/.<*$-])((?:[\w-]+/)*[\w-]+\.(?:md|py|txt|js|sh|toml|patch))(?![\w/])")
CITED_FOLDER = re.compile(r"`((?:controller|brokerstub|sparkjobs|tests|deploy|docs)(?:/[\w.-]+)+)/?`")
CITED_MODULE = re.compile(r"python -m ((?:controller|brokerstub|sparkjobs|tests)(?:\.\w+)*)")
#: a page outside the project, by its kind and a place in it: readers cannot open it
CITED_PAGE = re.compile(r"\b(?:interface|design|reference|issue|review),? (?:sections?|rules?|chapters?|#?\d)", re.I)
CITED_TEST = re.compile(r"`(test_\w+)`")
CITED_LINK = re.compile(r"\]\(([^)#:]*)(?:#([\w-]+))?\)")
#: a file of Kafka's, and one that the report writes
CITED_ELSEWHERE = {"kafka-run-class.sh", "digest.txt"}


#: lines, znodes and answers carry the time of day; these look it up, or pass on a function that does
WALL_CLOCK_READERS = {
    "controller.api.routing.health",
    "controller.api.stream.pulse",
    "controller.api.v1.reports",
    "controller.api.v1.writes",
    "controller.base.clock",
    "controller.term.controller",
    "brokerstub.lab.http_proxy",
    "brokerstub.runtime",
}
#: the age, for people, of a file; the time of day at a moment of the monotonic clock
MEASURE_BY_THE_WALL_CLOCK = {"controller.api.v1.reports", "controller.base.clock"}


def project_files() -> Iterator[Path]:
    """The files of the project; recordings in `tests/data` are other people's words."""
    for folder, folders, names in os.walk(ROOT):
        here = Path(folder)
        folders[:] = [n for n in folders if n not in IGNORED and not n.endswith(".egg-info")]
        folders[:] = [n for n in folders if here / n != ROOT / "tests" / "data"]
        yield from (here / name for name in names if name not in IGNORED)  # in a worktree `.git` is a file


@cache
def modules() -> dict[str, ast.Module]:
    """Every Python file by its dotted name."""
    found = {}
    for path in sorted(project_files()):
        if path.suffix == ".py":
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = ast.parse(path.read_bytes(), filename=str(path))
    return found


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def modules_of(*packages: str) -> dict[str, ast.Module]:
    return {name: tree for name, tree in modules().items() if any(is_within(name, one) for one in packages)}


@cache
def imports_of(name: str) -> frozenset[str]:
    """Dotted names of everything imported, anywhere in the module: `from a import b` is `a.b`."""
    found = set()
    for node in ast.walk(modules()[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def importers_of(library: str, *packages: str) -> set[str]:
    return {name for name in modules_of(*packages) if any(is_within(one, library) for one in imports_of(name))}


def layer_of(name: str) -> int:
    """The most specific layer that a dotted name belongs to."""
    packages = (
        (package, index)
        for index, layer in enumerate(LAYERS)
        for package in ((layer,) if isinstance(layer, str) else layer)
    )
    return max((len(package), index) for package, index in packages if is_within(name, package))[1]


def calls_in(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Yields each call with the last part of the called name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield getattr(node.func, "attr", getattr(node.func, "id", "")), node


def test_each_layer_imports_only_layers_before_it() -> None:
    wrong = {
        f"{name} imports {imported}"
        for name in modules_of(*OURS, "sparkjobs")
        if name not in SHELLS
        for imported in imports_of(name)
        if imported.startswith(("controller.", "brokerstub.", "sparkjobs.")) and layer_of(imported) > layer_of(name)
    }
    assert wrong == set()


def test_the_core_imports_only_data_tools_and_itself() -> None:
    wrong = {
        f"{name} imports {imported}"
        for name in modules_of("controller.core")
        for imported in imports_of(name)
        if imported.partition(".")[0] not in CORE_MAY_IMPORT and not is_within(imported, "controller.core")
    }
    assert wrong == set()


def test_the_core_draws_only_from_a_seeded_generator() -> None:
    for name, tree in modules_of("controller.core").items():
        assert {one for one in imports_of(name) if is_within(one, "random")} <= {"random.Random"}, name
        unseeded = [node.lineno for called, node in calls_in(tree) if called == "Random" and not node.args]
        assert unseeded == [], name


def test_the_core_does_not_reach_out_of_itself() -> None:
    for name, tree in modules_of("controller.core").items():
        reached = {called for called, node in calls_in(tree) if isinstance(node.func, ast.Name)} & CORE_MAY_NOT_CALL
        assert reached == set(), name
        awaiting = [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.Await)]
        assert awaiting == [], name


def test_aiozk_stays_in_the_adapter() -> None:
    assert importers_of("aiozk", *OURS) <= AIOZK_USERS


def test_only_one_module_is_an_http_client_and_only_the_edges_serve() -> None:
    for name in importers_of("aiohttp", *OURS):
        of_server = {one for one in imports_of(name) if one.startswith(AIOHTTP_SERVER_SIDE)}
        of_client = {one for one in imports_of(name) if is_within(one, "aiohttp")} - of_server
        assert not of_server or any(is_within(name, edge) for edge in HTTP_SERVERS), f"{name} imports {of_server}"
        assert not of_client or name in HTTP_CLIENTS, f"{name} imports {of_client}"


def test_spark_jobs_stand_alone_and_only_they_import_pyspark() -> None:
    assert importers_of("pyspark", *OURS) == set()
    for package in (*OURS, "tests"):
        assert importers_of(package, "sparkjobs") == set()
    assert importers_of("sparkjobs", *OURS) == set()


def test_zookeeper_is_written_by_the_listed_modules_only() -> None:
    writers = {
        name
        for name, tree in modules_of(*OURS).items()
        for called, node in calls_in(tree)
        if len(node.args) + len(node.keywords) >= ZOOKEEPER_WRITES.get(called, 100)
        and isinstance(node.func, ast.Attribute)
    }
    assert writers - set(ZOOKEEPER_ADAPTER) == ZOOKEEPER_WRITERS


def test_every_module_says_its_purpose() -> None:
    assert {name for name, tree in modules().items() if tree.body and ast.get_docstring(tree) is None} == set()


def test_bugs_are_caught_in_one_place_only() -> None:
    """`except BaseException` that raises again only cleans up, and may."""
    catching = set()
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                caught = {one.id for one in ast.walk(node.type) if isinstance(one, ast.Name)} if node.type else {""}
                raises = any(isinstance(one, ast.Raise) for one in ast.walk(node))
                if caught & {"", "Exception"} or ("BaseException" in caught and not raises):
                    catching.add(name)
    assert catching == CATCHES_EVERYTHING


def test_nothing_is_raised_out_of_an_except_star() -> None:
    """Until 3.11.4, Python wraps it into a group once more, and its awaiter does not know it again."""
    raising = {
        f"{name}:{one.lineno}"
        for name, tree in modules().items()
        for block in ast.walk(tree)
        if isinstance(block, ast.TryStar)
        for handler in block.handlers
        for one in ast.walk(handler)
        if isinstance(one, ast.Raise)
    }
    assert raising == set()


def test_no_test_replaces_code_under_test() -> None:
    libraries = ("unittest.mock", "mock", "pytest_mock")
    assert set[str]().union(*(importers_of(library, "tests") for library in libraries)) == set()
    fixtures = {
        name
        for name, tree in modules_of("tests").items()
        for node in ast.walk(tree)
        if isinstance(node, ast.arg) and node.arg == "mocker"
    }
    assert fixtures == set()


def test_no_test_sleeps_for_luck() -> None:
    """A sleep belongs into a loop that asks for a condition; anywhere else it is a guess (but for `sleep(0)`, and in
    virtual time, where it is exact)."""
    wrong = set()
    for name, tree in modules_of("tests").items():
        if "tests.contract.virtual.in_virtual_time" in imports_of(name):
            continue
        polls = {id(node) for loop in ast.walk(tree) if isinstance(loop, ast.While) for node in ast.walk(loop)}
        for called, node in calls_in(tree):
            is_library = not isinstance(node.func, ast.Attribute) or ast.unparse(node.func.value) in ("time", "asyncio")
            if called == "sleep" and is_library and id(node) not in polls and ast.unparse(node.args[0]) != "0":
                wrong.add(f"{name}:{node.lineno}")
    assert wrong == set()


def test_no_test_judges_the_wall_clock() -> None:
    """Where time is the subject it is virtual; where a loop must not be held, turns and bytes are counted; other tests
    of time are benchmarks."""
    found = set(judgements(modules(), judged()))
    assert found == set()


def test_no_test_waits_for_less_than_a_minute() -> None:
    """Except a test of silence. Tests in virtual time, or with faults on real processes, have times of their own."""
    own = (
        "tests.faults.chaos",
        "tests.faults.simulate",
        "tests.faults.crash",
        "tests.docker",
        "tests.real_brokers.record",
    )
    assert sorted(short_deadlines(modules(), {name for name in judged() if not name.startswith(own)})) == []


def test_only_code_that_tells_people_the_time_reads_the_wall_clock() -> None:
    ours = {name for package in OURS for name in modules_of(package)}
    assert wall_readers(modules(), ours) == WALL_CLOCK_READERS


def test_nothing_is_measured_by_the_wall_clock() -> None:
    """It may jump, and in another process it says something else. The core is handed the term's clock, and reckons with
    no moment of another."""
    ours = {name for package in OURS for name in modules_of(package)} - MEASURE_BY_THE_WALL_CLOCK
    assert sorted(measured_by_the_wall(modules(), ours)) == []
    assert sorted(moments_reckoned_with(modules(), set(modules_of("controller.core")))) == []


def judged() -> set[str]:
    return set(modules_of("tests")) - set(modules_of("tests.bench"))


def test_no_file_names_a_registry_or_this_machine() -> None:
    registries = [("pypi", "org"), ("files", "pythonhosted", "org"), ("registry", "npmjs", "org")]
    registries += [("repo1", "maven", "org"), ("repo", "maven", "apache", "org")]
    words = [".".join(parts).encode() for parts in registries]
    words += ["/".join(("", "work", "")).encode(), "/".join(("..", "shared")).encode()]
    wrong = {
        f"{path.relative_to(ROOT)}: {word.decode()}"
        for path in project_files()
        for content in (path.read_bytes(),)
        for word in words
        if word in content
    }
    assert wrong == set()


def prose() -> Iterator[tuple[Path, str]]:
    """Texts for people: pages, docstrings and comments."""
    pages = [*project_files(), *(ROOT / "tests" / "data").rglob("*.md")]
    yield from ((path, path.read_text(encoding="utf-8")) for path in pages if path.suffix == ".md")
    yield ROOT / "Makefile", (ROOT / "Makefile").read_text(encoding="utf-8")
    for name, tree in modules().items():
        stem = ROOT.joinpath(*name.split("."))
        path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        words = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
        words += re.findall(r"(?m)(?:^|\s)#:? (.*)$", path.read_text(encoding="utf-8"))
        yield path, "\n".join(words)


def test_every_citation_is_in_the_tree() -> None:
    """A page or a docstring that cites a file, a folder, a module, a test or a heading cites one that exists."""
    paths = {path.relative_to(ROOT) for path in (*project_files(), *(ROOT / "tests" / "data").rglob("*"))}
    paths |= {parent for path in paths for parent in path.parents}
    tails = {"/".join(path.parts[start:]) for path in paths for start in range(len(path.parts))}
    nodes = (node for tree in modules_of("tests").values() for node in ast.walk(tree))
    tests = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    missing = set()
    for path, text in prose():
        cited = {*CITED_FILE.findall(text), *CITED_FOLDER.findall(text)} - CITED_ELSEWHERE
        missing |= {(path, one) for one in cited - tails}
        called = {(one, one.replace(".", "/")) for one in CITED_MODULE.findall(text)}
        missing |= {(path, one) for one, at in called if not {at, f"{at}.py"} & tails}
        missing |= {(path, one) for one in CITED_PAGE.findall(" ".join(text.split()))}
        missing |= {(path, one) for one in CITED_TEST.findall(text) if one not in tests}
        if path.suffix == ".md":
            missing |= {(path, f"{link}#{anchor}") for link, anchor in broken_links(path, text)}
    assert sorted(f"{path.relative_to(ROOT)}: {one}" for path, one in missing) == []


def broken_links(page: Path, text: str) -> Iterator[tuple[str, str]]:
    """Links of a page to a file or a heading that is not there."""
    for link, anchor in CITED_LINK.findall(text):
        target = (page.parent / link).resolve() if link else page
        if not target.exists():
            yield link, anchor
        elif anchor and target.suffix == ".md":
            there = target.read_text(encoding="utf-8")
            headings = [
                re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in re.findall(r"(?m)^#+ (.*)$", there)
            ]
            if anchor not in (*headings, *re.findall(r'<a name="([\w-]+)">', there)):
                yield link, anchor


def test_the_tables_of_the_state_machines_are_current() -> None:
    page = tables.PAGE.read_text(encoding="utf-8")
    assert tables.page_with_tables(page) == page, "run `make tables`"
