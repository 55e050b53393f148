"""Watch one more run of the learner's function, to see its values.

NumPy inputs become a subclass of arrays that notes every result with its
source line; in PyTorch a function mode does the same. Local variables are
read when a function of the learner's file returns, which shows the buffers
that loops fill.

Nothing seen here decides between right and wrong.
"""

import contextlib
import itertools
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
from numpy import ndarray

from course.exercises.compare import alike, fingerprint, identical, same
from course.exercises.sandbox import (
    TimeLimit,
    deadline,
    fresh,
    is_tensor,
    quiet,
    torch_if_loaded,
)

MAX_SEEN = 400
MAX_NUMBERS = 20_000


@dataclass
class Seen:
    """A value that occurred in the run.

    Attributes:
        value: The array.
        line: Line of the learner's file.
        how: What made it, such as "matmul" or "variable scores".
        mark: Its fingerprint.
    """

    value: ndarray
    line: int
    how: str
    mark: tuple[int, float, float] = field(init=False)

    def __post_init__(self) -> None:
        self.mark = fingerprint(self.value)


class _Log:
    def __init__(self, filename: str) -> None:
        self.filename, self.seen = filename, list[Seen]()

    def add(self, value: Any, how: str, line: int | None = None) -> None:
        if (len(self.seen) >= MAX_SEEN or not isinstance(value, ndarray)
                or value.ndim == 0 or value.size > MAX_NUMBERS
                or value.dtype.kind not in "fbiu"):
            return
        if line is None:
            line = self._line()
        if line is not None:
            self.seen.append(Seen(np.array(value, subok=False), line, how))

    def _line(self) -> int | None:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and (
                frame.f_code.co_filename != self.filename):
            frame = frame.f_back
        return None if frame is None else frame.f_lineno


_log: _Log | None = None


def _plain(value: Any) -> Any:
    if isinstance(value, Watched):
        return value.view(ndarray)
    if isinstance(value, list | tuple):
        return type(value)(_plain(item) for item in value)
    return value


def _watch(value: Any, how: str) -> Any:
    if isinstance(value, ndarray):
        if _log is not None:
            _log.add(_plain(value), how)
        return value.view(Watched) if value.ndim else value
    if isinstance(value, list | tuple):
        return type(value)(_watch(item, how) for item in value)
    return value


class Watched(ndarray):
    """An array that notes what is computed from it."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any,
                        out: Any = None, **options: Any) -> Any:
        if out is not None:
            options["out"] = tuple(_plain(item) for item in out)
        if "where" in options:
            options["where"] = _plain(options["where"])
        result = getattr(ufunc, method)(*_plain(inputs), **options)
        if out is None:
            return _watch(result, ufunc.__name__)
        if _log is not None:
            _log.add(_plain(out[0]), ufunc.__name__)
        return out[0] if len(out) == 1 else out

    def __array_function__(self, func: Any, types: Any, args: Any,
                           kwargs: Any) -> Any:
        kwargs = {key: _plain(value) for key, value in kwargs.items()}
        return _watch(func(*_plain(args), **kwargs), func.__name__)

    def __setitem__(self, key: Any, value: Any) -> None:
        ndarray.__setitem__(self.view(ndarray), _plain(key), _plain(value))
        if _log is not None:
            _log.add(self.view(ndarray), "assignment")

    def __getitem__(self, key: Any) -> Any:
        return _watch(self.view(ndarray)[_plain(key)], "index")


def _method(name: str) -> Callable[..., Any]:
    def watched(self: Watched, *args: Any, **kwargs: Any) -> Any:
        kwargs = {key: _plain(value) for key, value in kwargs.items()}
        plain = getattr(self.view(ndarray), name)
        return _watch(plain(*_plain(args), **kwargs), name)
    watched.__name__ = name
    return watched


def _transposed(self: Watched) -> Any:
    return _watch(self.view(ndarray).T, "T")


Watched.T = property(_transposed)
for _name in ("reshape", "transpose", "swapaxes", "sum", "max", "mean",
              "var", "std", "dot", "astype", "copy", "squeeze", "ravel",
              "flatten", "repeat"):
    setattr(Watched, _name, _method(_name))


@contextlib.contextmanager
def _torch_watched(log: _Log) -> Iterator[None]:
    torch = torch_if_loaded()
    if torch is None:
        yield
        return
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (),
                               kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            name = getattr(func, "__name__", "operation")
            if is_tensor(result) and name not in ("__get__", "size", "dim"):
                log.add(_tensor_as_array(result), name)
            return result

    with Mode():
        yield


def _tensor_as_array(tensor: Any) -> ndarray | None:
    torch = torch_if_loaded()
    if torch is None or not 0 < tensor.numel() <= MAX_NUMBERS:
        return None
    with torch._C.DisableTorchFunction():
        tensor = tensor.detach().cpu()
        if tensor.dtype == torch.bfloat16:
            tensor = tensor.float()
        return tensor.numpy().copy()


def filename_of(function: Callable[..., Any]) -> str | None:
    """Give the file (or the notebook cell) that a function stands in."""
    code = getattr(function, "__code__", None)
    if code is None:
        code = getattr(getattr(function, "func", None), "__code__", None)
    if code is None:
        call = type(function).__call__ if callable(function) else None
        code = getattr(call, "__code__", None)
    return None if code is None else code.co_filename


def record(function: Callable[..., Any], arguments: dict[str, Any],
           limit: float, filename: str | None = None) -> list[Seen]:
    """Run a function once more and note what values occur in it.

    Args:
        function: The learner's function.
        arguments: Its arguments by name, in order.
        limit: Seconds it may take.
        filename: File whose lines are noted; that of the function if None.

    Returns:
        The values in the order in which they occurred; those up to an error
        if there was one.
    """
    global _log
    filename = filename or filename_of(function)
    if filename is None:
        return []
    log = _Log(filename)
    given = []
    for value in arguments.values():
        copied = fresh(value)
        given.append(copied.view(Watched) if isinstance(copied, ndarray)
                     and copied.ndim else copied)

    def on_event(frame: FrameType, event: str, argument: Any) -> None:
        if event != "return" or frame.f_code.co_filename != filename:
            return
        for name, value in list(frame.f_locals.items()):
            if name in arguments:
                continue
            array = _tensor_as_array(value) if is_tensor(value) else value
            log.add(array, f"variable {name}", frame.f_lineno)

    before = sys.getprofile()
    _log = log
    try:
        with quiet(), deadline(limit), _torch_watched(log):
            sys.setprofile(on_event)
            function(*given)
    except KeyboardInterrupt:
        raise
    except (TimeLimit, Exception, SystemExit):
        pass  # what was seen up to here still counts
    finally:
        sys.setprofile(before)
        _log = None
    return log.seen


def look_for(value: Any, seen: list[Seen], *, exact: bool = False,
             any_axes: bool = True) -> Seen | None:
    """Say where a value occurred in a run.

    Args:
        value: The value; anything but an array is never found.
        seen: What occurred.
        exact: Whether it must agree almost to the last digit.
        any_axes: Whether another order of the axes counts.

    Returns:
        Where it occurred, or None. A matrix of a stack counts too: loops
        compute one matrix at a time.
    """
    if not isinstance(value, ndarray):
        return None
    equal = identical if exact else same
    mark = fingerprint(value)
    similar = [each for each in seen if alike(each.mark, mark)]
    for each in similar:
        if each.value.shape == value.shape and equal(each.value, value):
            return each
    if any_axes:
        for each in similar:
            if _equal_in_some_order(each.value, value, equal):
                return each
    return _matrix_of(value, seen, equal) if value.ndim > 2 else None


def _equal_in_some_order(found: ndarray, value: ndarray,
                         equal: Callable[[ndarray, ndarray], bool]) -> bool:
    if sorted(found.shape) != sorted(value.shape):
        return False
    return any(value.transpose(order).shape == found.shape
               and equal(found, value.transpose(order))
               for order in itertools.permutations(range(value.ndim)))


def _matrix_of(value: ndarray, seen: list[Seen],
               equal: Callable[[ndarray, ndarray], bool]) -> Seen | None:
    matrices = value.reshape(-1, *value.shape[-2:])[:16]
    fitting = [each for each in seen
               if each.value.shape == matrices.shape[1:]]
    for matrix in matrices if fitting else ():
        mark = fingerprint(matrix)
        for each in fitting:
            if alike(each.mark, mark) and equal(each.value, matrix):
                return each
    return None


def first_nan(seen: list[Seen], filename: str | None) -> str:
    """Say in which line the first NaN appeared, or nothing."""
    for each in seen:
        if each.value.dtype.kind == "f" and np.isnan(each.value).any():
            text = linecache.getline(filename or "", each.line).strip()
            where = f"The first NaN appears in line {each.line}"
            return f"{where}: {text}" if text else f"{where}."
    return ""
