"""What a learner has done, in one small file.

The file is written beside the course and replaced in one step, so that a
crash while writing leaves the old one. ``export`` turns it into a short text
that can be taken elsewhere; ``restore`` merges such a text. A progress file
is a convenience: where none can be written, nothing fails.

The environment variable ``COURSE_PROGRESS`` names another file; ``off``
keeps no progress at all, which is how the pages are run.
"""

import base64
import binascii
import contextlib
import inspect
import json
import os
import tempfile
import textwrap
import time
import zlib
from pathlib import Path
from typing import Any, TypedDict

from course.exercises.result import Result

FILE_NAME = ".course-progress.json"
PREFIX = "course1:"
MAX_SIZE = 1_000_000
_MARKS = ("_toc.yml", ".git")


class Entry(TypedDict, total=False):
    """What is kept of one exercise.

    Attributes:
        tries: How often it was checked.
        passed: When it was first passed, in seconds; None if not yet.
        last: The last finding, as ``Result.name``.
        hints: How many hints were shown since the finding changed.
        source: The text of the function that passed.
    """

    tries: int
    passed: int | None
    last: str
    hints: int
    source: str


Entries = dict[str, Entry]


def path() -> Path | None:
    """Give the file that progress is kept in, or None if none is kept."""
    chosen = os.environ.get("COURSE_PROGRESS")
    if chosen is not None:
        return None if chosen in ("", "off") else Path(chosen)
    here = Path.cwd()
    for folder in (here, *here.parents):
        if any((folder / mark).exists() for mark in _MARKS):
            return folder / FILE_NAME
    return here / FILE_NAME


def load() -> Entries:
    """Read the progress; nothing if there is none or it cannot be read."""
    file = path()
    if file is None:
        return {}
    try:
        return _valid(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _valid(data: Any) -> Entries:
    """Keep what has the right form; anything may stand in a file."""
    if not isinstance(data, dict):
        return {}
    entries: Entries = {}
    for name, entry in data.items():
        if not isinstance(name, str) or not isinstance(entry, dict):
            continue
        passed = entry.get("passed")
        entries[name] = {
            "tries": _count(entry.get("tries")),
            "passed": passed if isinstance(passed, int) else None,
            "last": str(entry.get("last") or ""),
            "hints": _count(entry.get("hints"))}
        if isinstance(entry.get("source"), str):
            entries[name]["source"] = entry["source"]
    return entries


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def save(entries: Entries) -> None:
    """Write the progress: a new file that replaces the old one at once."""
    file = path()
    if file is None:
        return
    text = json.dumps(entries, ensure_ascii=False, indent=0)
    with contextlib.suppress(OSError):
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=file.name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as new:
                new.write(text)
                new.flush()
                os.fsync(new.fileno())
            os.replace(name, file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def note(result: Result, answer: Any) -> None:
    """Keep the result of a check."""
    if path() is None or result.verdict in ("not attempted",
                                            "checker failed"):
        return
    entries = load()
    entry = entries.setdefault(result.exercise, {})
    entry["tries"] = entry.get("tries", 0) + 1
    if entry.get("last") != result.name:
        entry["last"], entry["hints"] = result.name, 0
    if result.passed:
        entry["passed"] = entry.get("passed") or int(time.time())
        with contextlib.suppress(OSError, TypeError):
            entry["source"] = textwrap.dedent(inspect.getsource(answer))
    save(entries)


def note_hint(exercise: str, shown: int) -> None:
    """Keep how many hints were shown."""
    entries = load()
    entries.setdefault(exercise, {})["hints"] = shown
    save(entries)


def export(*, with_code: bool = True) -> str:
    """Give the progress as one short text.

    Args:
        with_code: Whether to put in the functions that passed.
    """
    entries = load()
    if not with_code:
        entries = {name: {key: value for key, value in entry.items()
                          if key != "source"}  # type: ignore[misc]
                   for name, entry in entries.items()}
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":"))
    packed = zlib.compress(text.encode(), 9)
    return PREFIX + base64.urlsafe_b64encode(packed).decode()


def restore(text: str) -> Entries:
    """Merge an exported text into the progress.

    What was passed stays passed. The text is data; nothing in it is run.

    Args:
        text: What ``export`` gave.

    Returns:
        The merged progress.

    Raises:
        ValueError: The text is not such an export.
    """
    text = "".join(text.split())
    if not text.startswith(PREFIX):
        raise ValueError("This is no exported progress: it must begin with "
                         f"{PREFIX!r}.")
    try:
        packed = base64.urlsafe_b64decode(text.removeprefix(PREFIX))
        unpacker = zlib.decompressobj()
        raw = unpacker.decompress(packed, MAX_SIZE)
        if unpacker.unconsumed_tail:
            raise ValueError("it is too long")
        new = _valid(json.loads(raw))
    except (binascii.Error, zlib.error, ValueError) as error:
        raise ValueError("This exported progress is damaged: "
                         f"{error}.") from None
    entries = load()
    for name, entry in new.items():
        entries[name] = _merged(entries.get(name), entry)
    save(entries)
    return entries


def _merged(old: Entry | None, new: Entry) -> Entry:
    if old is None:
        return new
    further, other = (new, old) if new["tries"] > old["tries"] else (old, new)
    passed = [time for time in (old["passed"], new["passed"]) if time]
    merged: Entry = {**other, **further}
    merged["passed"] = min(passed, default=None)
    return merged
