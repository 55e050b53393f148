"""Run a learner's function once, so that nothing it does can do harm.

It gets copies of the inputs, a limit on time and memory, and its prints are
caught. This protects from accidents, not from malice: it is no security
sandbox.
"""

import contextlib
import copy
import ctypes
import io
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

import numpy as np
from numpy import ndarray

from course.exercises.compare import Answer

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

#: More numbers than any exercise asks for; such a result is not copied.
MAX_RESULT = 2_000_000
#: What a run may allocate on top of what the process already uses.
MAX_MEMORY = 4 * 2**30
MAX_PRINTED = 20_000
#: Seconds that imports may take before they are interrupted all the same.
MAX_IMPORT = 60.0


class TimeLimit(BaseException):
    """The time is up.

    Not an Exception: a learner's ``except Exception:`` must not swallow it.
    """


@dataclass
class Outcome:
    """What came of one call.

    Attributes:
        kind: "value", "raise" or "timeout".
        value: The result as arrays; None if it cannot be read as such.
        raw: The result as it came.
        error: What was raised.
        changed: Names of the arguments that were overwritten.
        printed: What the function printed.
        notes: Remarks on the form of the result.
        precision: Name of the result's dtype.
    """

    kind: str
    value: Answer | None = None
    raw: Any = None
    error: BaseException | None = None
    changed: tuple[str, ...] = ()
    printed: str = ""
    notes: list[str] = field(default_factory=list)
    precision: str = "float64"

    @property
    def has_numbers(self) -> bool:
        """Whether every array of the result holds a finite number.

        A result that is NaN throughout tells nothing.
        """
        if self.kind != "value" or self.value is None:
            return False
        arrays = self.value if isinstance(self.value, tuple) else (self.value,)
        return all(array.dtype.kind != "f" or bool(np.isfinite(array).any())
                   for array in arrays)


def torch_if_loaded() -> ModuleType | None:
    """Give the torch module if it was imported already; never import it."""
    return sys.modules.get("torch")


def is_tensor(value: Any) -> bool:
    """Say whether a value is a PyTorch tensor, without importing torch."""
    torch = torch_if_loaded()
    return torch is not None and isinstance(
        value, getattr(torch, "Tensor", ()))


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise ``TimeLimit`` in the body when the time is up.

    In the main thread of a POSIX system a timer signal does it; elsewhere a
    watchdog thread. Both fire again and again, past a bare ``except:``. One
    long call into C is interrupted only when it returns. The first use of
    PyTorch may import modules for seconds; a module that is cut off in the
    middle stays broken, so the clock starts anew behind an import.
    """
    on_main = threading.current_thread() is threading.main_thread()
    if on_main and hasattr(signal, "setitimer"):
        yield from _signal_deadline(seconds)
    else:
        yield from _thread_deadline(seconds)


def is_importing(frame: FrameType | None) -> bool:
    """Say whether a module is being imported in a frame or around it."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _signal_deadline(seconds: float) -> Iterator[None]:
    running = True
    latest = time.monotonic() + MAX_IMPORT

    def on_alarm(signum: int, frame: Any) -> None:
        if not running:
            return
        if is_importing(frame) and time.monotonic() < latest:
            signal.setitimer(signal.ITIMER_REAL, seconds, 0.05)
            return
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.05)
    try:
        yield
    finally:
        stopped = False
        while not stopped:  # an alarm may still come in these lines
            with contextlib.suppress(TimeLimit):
                running = False
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
                stopped = True


def _thread_deadline(seconds: float) -> Iterator[None]:
    target = ctypes.c_ulong(threading.get_ident())
    finished, lock, running = threading.Event(), threading.Lock(), True
    latest = time.monotonic() + MAX_IMPORT

    def watch() -> None:
        wait = seconds
        while not finished.wait(wait):
            frame = sys._current_frames().get(int(target.value))
            if is_importing(frame) and time.monotonic() < latest:
                wait = seconds
                continue
            wait = 0.05
            with lock:
                if running:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        target, ctypes.py_object(TimeLimit))

    # A platform without threads runs without a limit.
    with contextlib.suppress(RuntimeError):
        threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        with lock:
            running = False
        finished.set()


@contextlib.contextmanager
def memory_ceiling(size: int = MAX_MEMORY) -> Iterator[None]:
    """Turn a huge allocation into a MemoryError where the system lets us."""
    limits = _raise_of_address_space(size)
    if limits is None:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, limits[0])
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits[1])


def _raise_of_address_space(
        size: int) -> tuple[tuple[int, int], tuple[int, int]] | None:
    # PyTorch reserves address space that it never uses: leave it alone.
    if resource is None or torch_if_loaded() is not None:
        return None
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            in_use = int(file.read().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = in_use + size
    if soft != resource.RLIM_INFINITY and soft <= wanted:
        return None
    return (wanted, hard), (soft, hard)


class _Printed(io.StringIO):
    """Keep the first part of what is printed, whatever follows."""

    def write(self, text: str) -> int:
        if self.tell() < MAX_PRINTED:
            super().write(text[:MAX_PRINTED])
        return len(text)


@contextlib.contextmanager
def quiet(printed: io.StringIO | None = None) -> Iterator[None]:
    """Catch prints and silence warnings."""
    with (warnings.catch_warnings(), np.errstate(all="ignore"),
          contextlib.redirect_stdout(printed or _Printed())):
        warnings.simplefilter("ignore")
        yield


def fresh(value: Any) -> Any:
    """Copy an argument, so that a change cannot spread."""
    if isinstance(value, ndarray):
        return value.copy()
    if is_tensor(value):
        return value.detach().clone()
    return copy.copy(value)


def run(function: Callable[..., Any], arguments: dict[str, Any],
        limit: float, *, many: int = 0,
        like: Answer | None = None, use_memory_ceiling: bool = True
        ) -> Outcome:
    """Call a function with copies of the arguments, by position.

    Args:
        function: The learner's function.
        arguments: Arguments by the names of the exercise, in order.
        limit: Seconds it may take.
        many: How many arrays the result has; 0 for one that is no tuple.
        like: The right result. Memory of its size is filled with NaN first,
            so that a part which ``np.empty`` left unwritten cannot be right
            by chance.
        use_memory_ceiling: Whether to limit the memory; an import of torch
            in the function needs more.

    Returns:
        What came of it; nothing is raised but KeyboardInterrupt.
    """
    if like is not None:
        _poison(like)
    given = {name: fresh(value) for name, value in arguments.items()}
    printed = _Printed()
    ceiling = memory_ceiling() if use_memory_ceiling else (
        contextlib.nullcontext())
    try:
        with quiet(printed), ceiling, deadline(limit):
            raw = function(*given.values())
    except TimeLimit:
        return Outcome("timeout", printed=printed.getvalue())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: exit() in a notebook
        return Outcome("raise", error=error, printed=printed.getvalue())
    changed = tuple(name for name in arguments
                    if not _unchanged(arguments[name], given[name]))
    outcome = Outcome("value", raw=raw, changed=changed,
                      printed=printed.getvalue())
    with quiet():
        _read_result(outcome, many)
    return outcome


def _read_result(outcome: Outcome, many: int) -> None:
    """Turn the raw result into arrays."""
    raw = outcome.raw
    size = _size(raw)
    if size > MAX_RESULT:
        outcome.kind, outcome.raw = "raise", None
        outcome.error = MemoryError(f"the result holds {size} numbers")
    elif not many:
        outcome.value, outcome.precision = to_array(raw, outcome.notes)
    elif isinstance(raw, tuple | list) and len(raw) == many:
        read = [to_array(item, outcome.notes) for item in raw]
        arrays = tuple(array for array, _ in read if array is not None)
        outcome.value = arrays if len(arrays) == many else None
        outcome.precision = min((name for _, name in read), key=_rank)


def _size(raw: Any) -> int:
    shape = getattr(raw, "shape", ())
    try:
        return int(np.prod([int(n) for n in shape], dtype=object))
    except Exception:
        return 0


def to_array(value: Any, notes: list[str]) -> tuple[ndarray | None, str]:
    """Read what a learner may reasonably return as an array.

    Args:
        value: A NumPy array, a tensor, a number or nested lists of those.
        notes: Remarks on the form are appended here.

    Returns:
        The array, or None if the value cannot be read as one, and the name
        of its dtype or type.
    """
    try:
        return _to_array(value, notes)
    except Exception:
        return None, type(value).__name__


def _to_array(value: Any, notes: list[str]) -> tuple[ndarray | None, str]:
    if is_tensor(value):
        value = value.detach().cpu()
        precision = str(value.dtype).replace("torch.", "")
        if precision == "bfloat16":
            value = value.float()
        return value.numpy().copy(), precision
    if isinstance(value, np.matrix):
        notes.append("You return an np.matrix, for which `*` is the matrix "
                     "product. Use plain arrays.")
        return np.asarray(value), str(value.dtype)
    if isinstance(value, ndarray | np.generic | bool | int | float | complex):
        array = np.array(value, subok=False)
        precision = str(array.dtype)
        return (None if array.dtype == object else array), precision
    if isinstance(value, list | tuple) and value:
        items = [to_array(item, [])[0] for item in value]
        if any(item is None for item in items):
            return None, type(value).__name__
        array = np.asarray(items)
        notes.append(f"You return a {type(value).__name__}. That is "
                     "accepted; an array is expected.")
        return array, str(array.dtype)
    return None, type(value).__name__


def _poison(like: Answer) -> None:
    for array in like if isinstance(like, tuple) else (like,):
        used = [np.full(max(array.size, 1), np.nan) for _ in range(8)]
        torch = torch_if_loaded()
        if torch is not None:
            used += [torch.full((max(array.size, 1),), float("nan"))
                     for _ in range(4)]
        del used


def _rank(precision: str) -> int:
    order = ["bfloat16", "float16", "float32", "float64"]
    return order.index(precision) if precision in order else len(order)


def coarsest(outcomes: list[Outcome]) -> str:
    """Give the coarsest dtype among the results, which sets the tolerance."""
    names = [o.precision for o in outcomes if o.kind == "value"]
    return min(names, key=_rank, default="float64")


def _unchanged(before: Any, after: Any) -> bool:
    if is_tensor(before):
        return before.shape == after.shape and bool((before == after).all())
    if isinstance(before, ndarray):
        return before.shape == after.shape and np.array_equal(
            before, after, equal_nan=before.dtype.kind == "f")
    return True
