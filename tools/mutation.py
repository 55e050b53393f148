"""Change the core in a thousand ways, and see which the tests notice.

``make mutation`` runs Cosmic Ray on a copy of the sources in
``_build/mutation``.  Every mutant needs fresh imports of the core, but not of
PyTorch: a server imports the libraries once, and forks for each mutant.

    python tools/mutation.py            everything (about an hour)
    python tools/mutation.py --resume   go on where the last run stopped
    python tools/mutation.py --report   the score and the survivors so far

tests/MUTATION.md says what is known about the survivors.
"""

import argparse
import ast
import contextlib
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

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "_build" / "mutation"
CONFIG = ROOT / "tools" / "mutation.toml"
SESSION = WORK / "session.sqlite"
#: Relative, and short, as the path of a socket must be.
SOCKET = "server.sock"

#: First those that notice most mutants soonest.
FIRST = ("test_cases.py", "test_masks.py", "test_bad_input.py")
THEN = ("test_backward.py", "test_layer.py", "test_attention.py",
        "test_gradients.py", "test_block.py", "test_properties.py",
        "test_mirror.py")
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
    print(f"{skip_what_is_no_program()} mutants are no Python: skipped")


def skip_what_is_no_program() -> int:
    """Skip mutants that no test needs to see, as Python refuses them.

    The star of ``*args`` counts as a multiplication to Cosmic Ray.
    """
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator
    from cosmic_ray.work_db import WorkDB, use_db
    from cosmic_ray.work_item import WorkerOutcome, WorkResult

    skipped = 0
    with use_db(str(SESSION), WorkDB.Mode.open) as database:
        for item in list(database.pending_work_items):
            (mutation,) = item.mutations
            operator = get_operator(mutation.operator_name)(
                **(mutation.operator_args or {}))
            source = (WORK / mutation.module_path).read_text("utf-8")
            mutant = mutate_code(source, operator, mutation.occurrence)
            try:
                ast.parse(mutant)
            except SyntaxError:
                skipped += 1
                database.set_result(item.job_id, WorkResult(
                    worker_outcome=WorkerOutcome.SKIPPED,
                    output="not a program"))
    return skipped


def run(tool: str, *arguments: str) -> None:
    command = Path(sys.executable).parent / tool
    environment = os.environ | {
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([command, *arguments], cwd=WORK, check=True,
                   env=environment)


def serve(ready: int) -> None:
    """Import the libraries once, then fork for every request."""
    sys.path[:0] = [str(WORK / "src"), str(WORK / "tests")]
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONPATH": str(WORK / "src"), "OMP_NUM_THREADS": "1",
                   "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    os.chdir(WORK)
    import beartype  # noqa: F401
    import hypothesis.strategies  # noqa: F401
    import jaxtyping  # noqa: F401
    import matplotlib.figure  # noqa: F401
    import numpy as np  # noqa: F401
    import pytest  # noqa: F401
    import torch.func  # noqa: F401

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
            os._exit(test_once())
        connection.sendall(b"%d" % wait_for(child, connection))
        connection.close()


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


def test_once() -> int:
    """Run the tests in this process; stop at the first that fails."""
    import pytest

    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    for files in (FIRST, THEN):
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-k", SLOW,
                            *(f"tests/{name}" for name in files)])
        if code != 0:
            return int(code)
    return 0


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
    os.read(reading, 1)
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
        with server():
            began = time.perf_counter()
            if subprocess.run([sys.executable, "tools/mutation.py", "--ask"],
                              cwd=WORK, check=False).returncode:
                sys.exit("The tests fail before anything is changed.")
            print(f"The tests pass in {time.perf_counter() - began:.0f} s.",
                  flush=True)
            run("cosmic-ray", "exec", "tools/mutation.toml", str(SESSION))
    report()


if __name__ == "__main__":
    main()
