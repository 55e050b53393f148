"""Change the core in a thousand ways, and see which the tests notice.

``make mutation`` runs Cosmic Ray on a copy of the sources in
``_build/mutation``.  Every mutant needs fresh imports of the core, but not of
PyTorch: a server imports the libraries once, and forks for each mutant.  It
also knows which tests run through which line, and runs those, quickest first.

    python tools/mutation.py            everything (about an hour)
    python tools/mutation.py --resume   go on where the last run stopped
    python tools/mutation.py --report   the score and the survivors so far

tests/MUTATION.md says what is known about the survivors.
"""

import argparse
import ast
import contextlib
import gc
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "_build" / "mutation"
CONFIG = ROOT / "tools" / "mutation.toml"
SESSION = WORK / "session.sqlite"
#: Relative, and short, as the path of a socket must be.
SOCKET = "server.sock"

TESTS = [f"tests/test_{name}.py" for name in (
    "cases", "masks", "bad_input", "shapes", "layer", "attention",
    "gradients", "backward", "properties", "mirror", "kernels")]
#: These start interpreters or look at files: no mutant needs them.
SLOW = ("not (needs_numpy_alone or load_torch or import or ruff or columns "
        "or written_apart)")


def prepare() -> None:
    """Copy the sources and let Cosmic Ray list its mutants."""
    shutil.rmtree(WORK, ignore_errors=True)
    for name in ("src", "tests", "tools"):
        shutil.copytree(ROOT / name, WORK / name, ignore=shutil.
                        ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", WORK)
    run("cosmic-ray", "init", "tools/mutation.toml", str(SESSION))
    run("cr-filter-operators", str(SESSION), "tools/mutation.toml")
    print(f"{skip_some()} mutants are no Python, or not of the core: skipped",
          flush=True)


def skip_some() -> int:
    """Skip mutants that no test of the core needs to see.

    Python itself refuses some: the star of ``*args`` counts as a
    multiplication to Cosmic Ray. And some checks serve other modules alone.
    """
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator
    from cosmic_ray.work_db import WorkDB, use_db
    from cosmic_ray.work_item import WorkerOutcome, WorkResult

    foreign = checks_of_other_modules()
    skipped = 0
    with use_db(str(SESSION), WorkDB.Mode.open) as database:
        for item in list(database.pending_work_items):
            (mutation,) = item.mutations
            operator = get_operator(mutation.operator_name)(
                **(mutation.operator_args or {}))
            source = (WORK / mutation.module_path).read_text("utf-8")
            if mutation.definition_name in foreign:
                skipped += 1
                database.set_result(item.job_id, WorkResult(
                    worker_outcome=WorkerOutcome.SKIPPED,
                    output="not of the core"))
                continue
            mutant = mutate_code(source, operator, mutation.occurrence)
            try:
                ast.parse(mutant)
            except SyntaxError:
                skipped += 1
                database.set_result(item.job_id, WorkResult(
                    worker_outcome=WorkerOutcome.SKIPPED,
                    output="not a program"))
    return skipped


def checks_of_other_modules() -> set[str]:
    """Name the functions of _checks that no core module uses."""
    folder = WORK / "src" / "self_attention"
    calls = {node.name: {n.id for n in ast.walk(node)
                         if isinstance(n, ast.Name)}
             for node in ast.parse((folder / "_checks.py").read_text()).body
             if isinstance(node, ast.FunctionDef)}
    used = {alias.name for name in ("numpy_reference", "torch_eager",
                                    "torch_fused")
            for node in ast.parse((folder / f"{name}.py").read_text()).body
            if isinstance(node, ast.ImportFrom) for alias in node.names}
    used |= {name for user in used & set(calls) for name in calls[user]}
    return set(calls) - used


def run(tool: str, *arguments: str) -> None:
    """Run a tool that is installed beside this Python."""
    command = Path(sys.executable).parent / tool
    environment = os.environ | {
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([command, *arguments], cwd=WORK, check=True,
                   env=environment)


def serve(ready: int) -> None:
    """Import the libraries once, then fork for every request."""
    sys.path[:0] = [str(WORK / "src"), str(WORK / "tests")]
    os.environ |= {"PYTHONPATH": str(WORK / "src"), "OMP_NUM_THREADS": "1",
                   "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    os.chdir(WORK)
    import beartype  # noqa: F401
    import coverage  # noqa: F401
    import hypothesis.strategies  # noqa: F401
    import jaxtyping  # noqa: F401
    import matplotlib.figure  # noqa: F401
    import numpy as np  # noqa: F401
    import pytest  # noqa: F401
    import torch._dynamo
    import torch.nn.attention.bias  # noqa: F401

    if not (WORK / "known.json").exists():
        if os.fork() == 0:
            os._exit(run_quietly(learn))
        if os.wait()[1] != 0:
            os._exit(1)  # the end of the pipe tells why
    gc.freeze()
    sys.dont_write_bytecode = True  # that of a mutant could outlive it
    whole = {path: (WORK / path).read_text("utf-8").split("\n")
             for path in tomllib.loads(CONFIG.read_text("utf-8"))[
                 "cosmic-ray"]["module-path"]}
    known = json.loads((WORK / "known.json").read_text("utf-8"))
    server = socket.socket(socket.AF_UNIX)
    server.bind(SOCKET)
    server.listen()
    os.write(ready, b"1")
    while True:
        connection, _ = server.accept()
        child = os.fork()
        if child == 0:
            os.setsid()
            server.close()
            os._exit(run_quietly(lambda: test_once(whole, known)))
        connection.sendall(b"%d" % wait_for(child, connection))
        connection.close()


def run_quietly(action) -> int:
    """Run in a forked process, whose output nobody reads."""
    null = os.open(WORK / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(null, 1)
    os.dup2(null, 2)
    return int(action())


def pytest_run(*arguments: str, plugins: tuple = ()) -> int:
    """Run tests in this process; stop at the first that fails."""
    import pytest

    return int(pytest.main(
        ["-x", "-q", "--tb=no", "--assert=plain", "-p", "no:cacheprovider",
         "-p", "no:unraisableexception", "-k", SLOW, *arguments],
        plugins=list(plugins)))


def learn() -> int:
    """Write down which tests run through which line, and how long each is."""
    import coverage

    measure = coverage.Coverage(data_file=None, config_file=False,
                                include=[str(WORK / "src/self_attention/*")])
    seconds: Counter[str] = Counter()

    class Watch:
        def pytest_runtest_setup(self, item):
            measure.switch_context(item.nodeid.partition("[")[0])

        def pytest_runtest_logreport(self, report):
            seconds[report.nodeid.partition("[")[0]] += report.duration

    measure.start()
    code = pytest_run(*tests_there(), plugins=(Watch(),))
    measure.stop()
    data = measure.get_data()
    lines = {str(Path(path).relative_to(WORK)): {
        line: sorted(set(tests) - {""})
        for line, tests in data.contexts_by_lineno(path).items()}
        for path in data.measured_files()}
    (WORK / "known.json").write_text(json.dumps(
        {"lines": lines, "seconds": seconds}), "utf-8")
    return code


def tests_there() -> list[str]:
    """All test files, of those that the repository has by now."""
    return [name for name in TESTS if (WORK / name).exists()]


def wait_for(child: int, connection: socket.socket) -> int:
    """Wait for the tests, or end them when nobody waits any more."""
    connection.settimeout(0.02)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) & 255
        with contextlib.suppress(TimeoutError):
            if not connection.recv(1):
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return 1


def test_once(whole: dict[str, list[str]], known: dict) -> int:
    """Run the tests that go through what was changed."""
    for path, lines in whole.items():
        mutant = (WORK / path).read_text("utf-8").split("\n")
        if mutant == lines:
            continue
        row = next((i for i, (old, new) in enumerate(zip(lines, mutant))
                    if old != new), len(lines) - 1)
        tests = {test for line in statement_around("\n".join(lines), row + 1)
                 for test in known["lines"][path].get(str(line), ())}
        if not tests:
            break
        return pytest_run(*sorted(tests, key=known["seconds"].get))
    return pytest_run(*tests_there())


def statement_around(source: str, row: int) -> range:
    """The lines of the innermost statement, without a body of its own.

    Nothing where it runs at import: then every test may depend on it.
    """
    found = range(0)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef):
            continue
        for inner in ast.walk(node):
            if not isinstance(inner, ast.stmt) or inner is node:
                continue
            body = getattr(inner, "body", None)
            end = body[0].lineno if body else inner.end_lineno + 1
            lines = range(inner.lineno, end)
            if row in lines and (not found or len(lines) < len(found)):
                found = lines
    return found


def ask() -> int:
    """What Cosmic Ray runs for each mutant: 0 if all tests passed."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(SOCKET)
        return int(connection.recv(16) or b"1")


@contextlib.contextmanager
def server():
    """A server that is ready, and its end."""
    (WORK / SOCKET).unlink(missing_ok=True)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        serve(writing)
    os.close(writing)
    if not os.read(reading, 1):
        sys.exit("The tests fail before anything is changed: see "
                 f"{WORK / 'output.txt'}")
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def report() -> None:
    """Print the score and, for each survivor, what was changed."""
    database = sqlite3.connect(SESSION)
    rows = database.execute(
        "SELECT module_path, operator_name, start_pos_row, test_outcome,"
        "       worker_outcome, diff"
        "  FROM mutation_specs LEFT JOIN work_results USING (job_id)"
        "  ORDER BY module_path, start_pos_row, operator_name").fetchall()
    counts = Counter()
    for module, operator, row, outcome, worker, diff in rows:
        kind = str(worker if worker != "NORMAL" else outcome)
        counts[kind] += 1
        if kind == "SURVIVED":
            print(f"\n{module}:{row} {operator}")
            print(*(line for line in diff.splitlines()
                    if line[:1] in "+-" and line[:3] not in ("+++", "---")),
                  sep="\n")
    tested = counts["KILLED"] + counts["SURVIVED"] + counts["INCOMPETENT"]
    print("\n", dict(counts))
    print(f"score: {tested - counts['SURVIVED']} of {tested} mutants noticed "
          f"= {1 - counts['SURVIVED'] / max(tested, 1):.1%}")


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ask", action="store_true",
                        help=argparse.SUPPRESS)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--report", action="store_true")
    arguments = parser.parse_args()
    if arguments.ask:
        sys.exit(ask())
    if not (arguments.report or arguments.resume):
        prepare()
    if not arguments.report:
        began = time.perf_counter()
        with server():
            print(f"The tests pass in {time.perf_counter() - began:.0f} s.",
                  flush=True)
            run("cosmic-ray", "exec", "tools/mutation.toml", str(SESSION))
    report()


if __name__ == "__main__":
    main()
