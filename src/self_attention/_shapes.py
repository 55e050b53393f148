"""Run the shape annotations, and answer a wrong argument in words.

Every public function states the shapes of its arrays once, in its
annotation.  ``shape_checked`` executes that annotation at each call
(jaxtyping finds the axes, beartype the types) and turns the type checker's
report into one sentence that names the argument, its value and the rule.

A call that has passed is remembered by its types, dtypes and sizes, and the
next one like it is not checked again: a check costs as much as a small layer.
"""

import functools
import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, Union, get_args, get_origin

from beartype import beartype
from jaxtyping import TypeCheckError, jaxtyped

_PARAMETER = re.compile(r"typechecking parameter '(\w+)'")
_AXES = re.compile(r"axis annotation are as follows\.\s*\n(.*)", re.DOTALL)
_REMEMBERED = 4096  # calls for each function
_PLAIN = frozenset((int, float, str, bool, type(None)))

Function = TypeVar("Function", bound=Callable[..., Any])


def shape_checked(function: Function) -> Function:
    """Check the arguments and the result of a function by its annotations.

    Args:
        function: A function whose array parameters carry jaxtyping
            annotations such as ``Real[np.ndarray, "query_len head_dim"]``.

    Returns:
        The function, which now raises ``ValueError`` for an array of the
        wrong shape and ``TypeError`` for anything else that does not fit.
    """
    typed = jaxtyped(typechecker=beartype)(function)
    signature = inspect.signature(function)
    where = _spoken_name(function)
    sizes = _sizes_of_self(signature)
    passed: set[tuple[Any, ...]] = set()

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if _is_compiling():
            return function(*args, **kwargs)
        call = _outline(args, kwargs, sizes)
        if call in passed:
            return function(*args, **kwargs)
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError as report:
            takes = ", ".join(signature.parameters).removeprefix("self, ")
            raise TypeError(f"{where}: {report}; it takes {takes}") from None
        for problem in _overlooked(signature, bound):
            raise TypeError(f"{where}: {problem}")
        try:
            result = typed(*args, **kwargs)
            if call is not None and len(passed) < _REMEMBERED:
                passed.add(call)
            return result
        except TypeCheckError as report:
            found = _PARAMETER.search(str(report))
            if found is None:  # the result is wrong: a fault of ours
                raise
            kind, text = _in_words(signature, found[1], bound, str(report))
        raise kind(f"{where}: {text}")

    return checked  # type: ignore[return-value]


def _is_compiling() -> bool:
    """Whether torch.compile reads the code: it cannot read the checker's."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()


def _sizes_of_self(signature: inspect.Signature) -> tuple[str, ...]:
    """Name the attributes that the annotations of a method refer to."""
    hints = [p.annotation for p in signature.parameters.values()]
    found, todo = set(), [*hints, signature.return_annotation]
    while todo:
        hint = todo.pop()
        todo.extend(get_args(hint))
        found.update(re.findall(r"self\.(\w+)", getattr(hint, "dim_str", "")))
    return tuple(sorted(found))


def _outline(args: tuple[Any, ...], kwargs: Mapping[str, Any],
             sizes: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Say all that a check depends on, or None where that is not known."""
    outline: list[Any] = [*kwargs]
    for value in (*args, *kwargs.values()):
        kind = type(value)
        outline.append(kind)
        if kind in _PLAIN:
            outline.append(value)
        elif sizes and args and value is args[0]:
            outline += [getattr(value, size, None) for size in sizes]
        elif isinstance(shape := getattr(value, "shape", None), tuple):
            outline += (value.dtype, shape)
        else:
            return None
    return tuple(outline)


def _spoken_name(function: Callable[..., Any]) -> str:
    """Name a function as its caller does, who calls an object, no method."""
    name = function.__qualname__.removesuffix(".__init__")
    return name.removesuffix(".__call__").removesuffix(".forward")


def _overlooked(signature: inspect.Signature,
                bound: Mapping[str, Any]) -> Iterator[str]:
    """Find what the type checker lets pass.

    To Python a bool is an int, and beartype looks at only one element of a
    list or a mapping.
    """
    for name, value in bound.items():
        hint = signature.parameters[name].annotation
        members = _members(hint)
        if isinstance(value, bool) and int in members and bool not in members:
            yield f"{name}={value} is of type bool; {_rule(hint, bound)}"
        for member in members:
            inner = get_args(member)
            if get_origin(member) is Sequence and isinstance(value, Sequence):
                yield from (
                    f"{name} contains {_brief(element)} of type "
                    f"{_type_name(type(element))}; {_rule(hint, bound)}"
                    for element in value if type(element) is not inner[0])
            if get_origin(member) is Mapping and isinstance(value, Mapping):
                yield from (
                    f"{_difference(f'{name}[{key!r}]', element, inner[1])[1]}"
                    f"; {_rule(inner[1], bound)}"
                    for key, element in value.items()
                    if not isinstance(element, inner[1]))


def _in_words(signature: inspect.Signature, name: str,
              bound: Mapping[str, Any],
              report: str) -> tuple[type[Exception], str]:
    parameter = signature.parameters[name]
    hint, value = parameter.annotation, bound[name]
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        value = next(v for v in value if not _fits(v, hint))
    kind, difference = _difference(name, value, hint)
    known = _AXES.search(report)
    axes = ", ".join(known[1].split("\n")) if known else ""
    axes = re.sub(r"[{}]|self\.", "", axes.strip().strip(","))
    axes = re.sub(r"torch\.Size\(\[(.*?)\]\)", r"(\1)", axes)
    given = f" where {axes}" if axes and kind is ValueError else ""
    return kind, f"{difference}; {_rule(hint, bound)}{given}"


def _difference(name: str, value: Any,
                hint: Any) -> tuple[type[Exception], str]:
    """Say in what a value differs from its hint: type, dtype, or shape."""
    array = next((member for member in _members(hint)
                  if hasattr(member, "dim_str")), None)
    if array is None or not isinstance(value, array.array_type):
        return TypeError, (f"{name}={_brief(value)} is of type "
                           f"{_type_name(type(value))}")
    if not isinstance(value, array.dtype[array.array_type, "..."]):
        return TypeError, f"{name} has dtype {value.dtype}"
    return ValueError, f"{name} has shape {tuple(value.shape)}"


def _members(hint: Any) -> tuple[Any, ...]:
    is_union = get_origin(hint) in (Union, types.UnionType)
    return get_args(hint) if is_union else (hint,)


def _fits(value: Any, hint: Any) -> bool:
    return any(isinstance(value, member) for member in _members(hint))


def _rule(hint: Any, bound: Mapping[str, Any]) -> str:
    wanted = (_wanted(member, bound) for member in _members(hint))
    return f"it must be {' or '.join(wanted)}"


def _wanted(hint: Any, bound: Mapping[str, Any]) -> str:
    if hint is type(None):
        return "None"
    if get_origin(hint) is Sequence:
        return f"a sequence of {_type_name(get_args(hint)[0])}"
    if get_origin(hint) is Mapping:
        key, element = get_args(hint)
        return f"a mapping from {_type_name(key)} to {_wanted(element, bound)}"
    if not hasattr(hint, "dim_str"):
        return _type_name(hint)
    text = {"numpy": "a NumPy array", "torch": "a PyTorch tensor"}[
        hint.array_type.__module__.partition(".")[0]]
    kind = {"Bool": " of booleans (True = may attend)",
            "Integer": " of integers", "Float": " of floating-point numbers",
            "Real": " of real numbers", "Shaped": ""}
    text += kind[hint.dtype.__name__]
    if hint.dim_str == "...":
        return text
    axes = ", ".join(hint.dim_str.split())
    axes = re.sub(r"\{(?:self\.)?(\w+)\}", _value_of(bound), axes)
    return f"{text} with axes ({axes})"


def _value_of(bound: Mapping[str, Any]) -> Callable[[re.Match[str]], str]:
    def replace(found: re.Match[str]) -> str:
        name = found[1]
        size = getattr(bound.get("self"), name, bound.get(name))
        return f"{name}={size}"

    return replace


def _type_name(kind: Any) -> str:
    if not isinstance(kind, type):
        return str(kind)
    parts = [part for part in kind.__module__.split(".")
             if part != "builtins" and not part.startswith("_")]
    return ".".join([*parts, kind.__qualname__])


def _brief(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
