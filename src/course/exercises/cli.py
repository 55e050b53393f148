"""python -m course.exercises: the same checks for those who use an editor.

  list [CHAPTER]                 all exercises, with your progress
  new FILE [EXERCISE ...]        write a file to start from
  check FILE [EXERCISE ...]      check the answers in FILE
  watch FILE [EXERCISE ...]      check again whenever FILE is saved
  hint EXERCISE                  the next hint
  solution EXERCISE              the solution, after a pass or three tries
  export                         your progress as a short text
  restore TEXT                   take over such a text

Exit status: 0 if all is well and every checked answer is right, 1 if one is
not, 2 if the command makes no sense.
"""

import argparse
import ast
import dataclasses
import importlib.util
import json
import multiprocessing
import re
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from course.exercises import ledger
from course.exercises.hints import hint, solution
from course.exercises.judge import check
from course.exercises.overview import Overview
from course.exercises.registry import UnknownExerciseError, find, tasks

RIGHT, WRONG, USAGE = 0, 1, 2
#: Seconds after which a silent answer is killed, whatever it does.
PATIENCE = 20.0
#: Seconds that a file may take to be imported.
IMPORT_PATIENCE = 60.0
POLL = 0.4


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except UnknownExerciseError as error:
        print(error.args[0], file=sys.stderr)
        return USAGE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course.exercises", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Any, *names: str,
            several: bool = False) -> argparse.ArgumentParser:
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        for each in names:
            command.add_argument(each)
        if several:
            command.add_argument("exercises", nargs="*")
        return command

    add("list", _list).add_argument("chapter", nargs="?", type=int)
    add("new", _new, "file", several=True)
    for name, run in (("check", _check), ("watch", _watch)):
        command = add(name, run, "file", several=True)
        command.add_argument("--seed", type=int,
                             help="draw these inputs again")
        command.add_argument("--json", action="store_true",
                             help="write one JSON object for each answer")
        command.add_argument("--patience", type=float, default=PATIENCE,
                             help="seconds before a silent answer is killed")
    add("hint", _hint, "exercise").add_argument("--step", type=int)
    add("solution", _solution, "exercise").add_argument(
        "--now", action="store_true", help="do not wait for three tries")
    add("export", _export).add_argument("--without-code",
                                        action="store_true")
    add("restore", _restore, "text")
    return parser


def _list(options: argparse.Namespace) -> int:
    print(repr(Overview(options.chapter)))
    return RIGHT


def _new(options: argparse.Namespace) -> int:
    file = Path(options.file)
    chosen = [find(name) for name in options.exercises] or list(tasks())
    imports, stubs = {"import numpy as np": None}, []
    for task in chosen:
        lines = task.stub().splitlines()
        first = next(n for n, line in enumerate(lines)
                     if not line.startswith(("import ", "from "))
                     and line.strip())
        imports |= dict.fromkeys(line for line in lines[:first] if line)
        body = "\n".join(lines[first:])
        task_lines = textwrap.fill(f"{task.title}. {task.task}", 76)
        stubs.append(textwrap.indent(task_lines, "# ") + f"\n{body}\n")
    text = "\n".join(imports) + "\n\n\n" + "\n\n".join(stubs)
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        print(f"{file} exists; it was left as it is.", file=sys.stderr)
        return USAGE
    except OSError as error:
        print(f"{file} cannot be written: {error}", file=sys.stderr)
        return USAGE
    print(f"Wrote {file} with {len(chosen)} exercises.")
    return RIGHT


def _hint(options: argparse.Namespace) -> int:
    print(hint(options.exercise, options.step))
    return RIGHT


def _solution(options: argparse.Namespace) -> int:
    print(_as_commands(repr(solution(options.exercise, now=options.now))))
    return RIGHT


def _as_commands(text: str) -> str:
    """Name this program's commands where a notebook's functions stand."""
    for call, command in ((r"hint\('(\w+)'\)", r"`hint \1`"),
                          (r"solution\('(\w+)', now=True\)",
                           r"`solution \1 --now`"),
                          (r"seed=(\d+)\.", r"--seed \1")):
        text = re.sub(call, command, text)
    return text


def _export(options: argparse.Namespace) -> int:
    print(ledger.export(with_code=not options.without_code))
    return RIGHT


def _restore(options: argparse.Namespace) -> int:
    try:
        entries = ledger.restore(options.text)
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE
    done = sum(bool(entry.get("passed")) for entry in entries.values())
    print(f"{done} exercises are done.")
    return RIGHT


def _watch(options: argparse.Namespace) -> int:
    last = None
    try:
        while True:
            # The time alone is not enough: an editor empties a file and fills
            # it within one tick of the clock that stamps it.
            try:
                file = Path(options.file)
                saved: Any = file.stat().st_mtime_ns, file.read_bytes()
            except OSError as error:
                saved = type(error)
            if saved != last:
                last = saved
                print(f"--- {time.strftime('%H:%M:%S')}")
                _check(options)
            time.sleep(POLL)
    except KeyboardInterrupt:
        return RIGHT


def _check(options: argparse.Namespace) -> int:
    names = answers_in(options.file, options.exercises)
    if isinstance(names, str):
        print(names, file=sys.stderr)
        return USAGE
    passed = 0
    for report in _reports(options, names):
        passed += report["verdict"] == "passed"
        print(json.dumps(report) if options.json
              else _as_commands(report["text"]))
    if not options.json:
        print(f"{passed} of {len(names)} right.")
    return RIGHT if passed == len(names) else WRONG


def answers_in(file: str, wanted: Sequence[str]) -> list[str] | str:
    """Find the exercises that a file has answers for, without running it.

    Args:
        file: Path of the file.
        wanted: Names of exercises; all that are there if empty.

    Returns:
        Their names in the order of the course, or what is wrong.
    """
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"), file)
    except (OSError, UnicodeDecodeError) as error:
        return f"{file} cannot be read: {error}"
    except SyntaxError as error:
        text = (error.text or "").strip()
        return f"{file}, line {error.lineno}: {error.msg}: {text}"
    defined = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined |= {target.id for target in node.targets
                        if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom | ast.Import):
            defined |= {alias.asname for alias in node.names if alias.asname}
    asked = {find(name).id for name in wanted}
    names = [task.id for task in tasks()
             if {task.id, task.name} & defined
             and (not asked or task.id in asked)]
    missing = asked - set(names)
    if missing:
        return f"{file} has no answer for: {', '.join(sorted(missing))}."
    return names or f"{file} has no answer for any exercise."


def _reports(options: argparse.Namespace,
             names: list[str]) -> Iterator[dict[str, Any]]:
    """Check in a child process, so that a hung answer can be killed."""
    left = list(names)
    context = multiprocessing.get_context("spawn")
    while left:
        here, there = context.Pipe(duplex=False)
        child = context.Process(target=_answer, daemon=True, args=(
            there, options.file, left, options.seed))
        child.start()
        there.close()
        try:
            patience = max(IMPORT_PATIENCE, options.patience)
            while left:
                report = _receive(here, patience)
                patience = options.patience
                if report is None:
                    yield _lost(left.pop(0), child, options.patience)
                    break
                if report.get("import"):
                    if report["import"] == "done":
                        continue
                    for name in left:
                        yield {"exercise": name, "verdict": "raised",
                               "text": f"✗ {name}: {report['import']}"}
                    return
                left.pop(0)
                yield report
        finally:
            child.kill()
            child.join()
            here.close()


def _receive(pipe: Connection, patience: float) -> dict[str, Any] | None:
    try:
        return pipe.recv() if pipe.poll(patience) else None
    except (EOFError, OSError):
        return None


def _lost(name: str, child: Any, patience: float) -> dict[str, Any]:
    child.join(0.2)
    if child.is_alive():
        verdict, what = "timed out", f"killed after {patience:g} s of silence"
    else:
        verdict, what = "raised", ("the process that ran it ended with the "
                                   f"status {child.exitcode}")
    return {"exercise": name, "verdict": verdict,
            "text": f"✗ {name}: Not yet. {what[0].upper()}{what[1:]}."}


def _answer(pipe: Connection, file: str, names: list[str],
            seed: int | None) -> None:
    """Import a file and check its answers; runs in the child."""
    try:
        module = _imported(file)
    except BaseException as error:
        pipe.send({"import": f"{file} cannot be imported: "
                             f"{type(error).__name__}: {error}"})
        return
    pipe.send({"import": "done"})
    for name in names:
        task = find(name)
        answer = getattr(module, task.name, getattr(module, name, None))
        result = check(name, answer, seed=seed)
        report = dataclasses.asdict(result)
        pipe.send({**report, "mistakes": list(result.mistakes),
                   "text": result.text})


def _imported(file: str) -> Any:
    path = Path(file).resolve()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("answers", path)
    if spec is None or spec.loader is None:
        raise ImportError("its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
