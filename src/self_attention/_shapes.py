"""Run the shape annotations, and answer a wrong argument in words.

Every public function states the shapes of its arrays once, in its
annotation.  ``shape_checked`` executes that annotation at each call
(jaxtyping finds the axes, beartype the types) and turns the type checker's
report into one sentence that names the argument, its value and the rule.
"""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from beartype import beartype
from jaxtyping import TypeCheckError, jaxtyped

_PARAMETER = re.compile(r"typechecking parameter '(\w+)'")
_AXES = re.compile(r"axis annotation are as follows\.\s*\n(.*)", re.DOTALL)

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

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        try:
            return typed(*args, **kwargs)
        except TypeCheckError as report:
            found = _PARAMETER.search(str(report))
            if found is None:  # the result is wrong: a fault of ours
                raise
            problem = _in_words(function, signature, found[1], args, kwargs,
                                str(report))
        raise problem

    return checked  # type: ignore[return-value]


def _in_words(function: Callable[..., Any], signature: inspect.Signature,
              name: str, args: tuple[Any, ...], kwargs: dict[str, Any],
              report: str) -> Exception:
    bound = signature.bind(*args, **kwargs).arguments
    parameter = signature.parameters[name]
    value = bound[name]
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        value = next((v for v in value if not _fits(v, parameter.annotation)),
                     value)
    where = function.__qualname__.removesuffix(".__init__")
    where = where.removesuffix(".__call__").removesuffix(".forward")
    rule = _rule(parameter.annotation, bound)
    array = next((hint for hint in _members(parameter.annotation)
                  if hasattr(hint, "dim_str")), None)
    if array is None or not isinstance(value, array.array_type):
        return TypeError(f"{where}: {name}={_brief(value)} is of type "
                         f"{type(value).__name__}; {rule}")
    if not isinstance(value, array.dtype[array.array_type, "..."]):
        return TypeError(f"{where}: {name} has dtype {value.dtype}; {rule}")
    known = _AXES.search(report)
    axes = ", ".join(known[1].split("\n")) if known else ""
    axes = re.sub(r"[{}]|self\.", "", axes.strip().strip(","))
    given = f" where {axes}" if axes else ""
    return ValueError(f"{where}: {name} has shape {tuple(value.shape)}; "
                      f"{rule}{given}")


def _members(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__args__", None) or (hint,)


def _fits(value: Any, hint: Any) -> bool:
    return any(
        (value is None) if member is type(None) else
        isinstance(value, member) for member in _members(hint)
        if isinstance(member, type))


def _rule(hint: Any, bound: dict[str, Any]) -> str:
    parts = []
    for member in _members(hint):
        if hasattr(member, "dim_str"):
            kind = {"Bool": "booleans (True = may attend)",
                    "Integer": "integers", "Float": "floating-point numbers",
                    "Real": "real numbers", "Shaped": "any dtype"}
            dtype = kind.get(member.dtype.__name__, member.dtype.__name__)
            text = "an array"
            if dtype != "any dtype":
                text += f" of {dtype}"
            module = member.array_type.__module__.partition(".")[0]
            article = {"numpy": "a NumPy array", "torch": "a PyTorch tensor"}
            text = text.replace("an array", article.get(module, "an array"))
            if member.dim_str.strip() != "...":
                axes = ", ".join(member.dim_str.split())
                axes = re.sub(r"\{(?:self\.)?(\w+)\}", _value_of(bound), axes)
                text += f" with axes ({axes})"
            parts.append(text)
        elif member is type(None):
            parts.append("None")
        else:
            parts.append(getattr(member, "__name__", str(member)))
    return f"it must be {' or '.join(parts)}"


def _value_of(bound: dict[str, Any]) -> Callable[[re.Match[str]], str]:
    def replace(found: re.Match[str]) -> str:
        name = found[1]
        size = getattr(bound.get("self"), name, bound.get(name))
        return f"{name}={size}"

    return replace


def _brief(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."
