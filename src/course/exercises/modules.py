"""Answers that need PyTorch: loaded late, and modules used as functions."""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

_HOME = "course.exercises.solutions_torch"
_FILE = Path(__file__).with_name("solutions_torch.py")


class MisfitError(Exception):
    """What was handed in cannot be used; the message says why."""


class Deferred:
    """A solution whose module is imported at its first call.

    Its name, its docstring and its source can be read without PyTorch.
    """

    def __init__(self, name: str) -> None:
        text = _FILE.read_text(encoding="utf-8")
        node = next(
            node for node in ast.parse(text).body
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
            and node.name == name)
        self.__name__ = name
        self.__doc__ = ast.get_docstring(node)
        self.source = "\n".join(
            text.splitlines()[node.lineno - 1:node.end_lineno]) + "\n"

    def __call__(self, *arguments: Any) -> Any:
        """Import the solution and call it."""
        return self.load()(*arguments)

    def load(self) -> Any:
        """Import the solution and give it."""
        return getattr(importlib.import_module(_HOME), self.__name__)


def deferred(name: str) -> Deferred:
    """Give a solution of ``solutions_torch`` without importing it."""
    return Deferred(name)


def as_function(module_class: Any) -> Callable[..., Any]:
    """Use a class of modules as a function of embeddings and weights.

    Args:
        module_class: A class that is built from (embed_dim, num_heads), has
            the linear maps W_q, W_k, W_v and W_o, and is called with
            (x, attention_mask).

    Returns:
        A function of (x, W_q, W_k, W_v, W_o, num_heads, attention_mask).
    """
    if isinstance(module_class, Deferred):
        module_class = module_class.load()

    def function(x: Any, W_q: Any, W_k: Any, W_v: Any, W_o: Any,
                 num_heads: int, attention_mask: Any) -> Any:
        import torch
        if not isinstance(module_class, type):
            raise MisfitError("Hand in the class itself, not an instance of "
                              "it: the check builds modules of several "
                              "sizes.")
        module = module_class(x.shape[-1], num_heads)
        weights = {"W_q": W_q, "W_k": W_k, "W_v": W_v, "W_o": W_o}
        for name, wanted in weights.items():
            own = getattr(getattr(module, name, None), "weight", None)
            if own is None:
                raise MisfitError(f"The module needs self.{name}, an "
                                  "nn.Linear, so that the check can copy "
                                  "its weights in.")
            if own.shape != wanted.shape:
                raise MisfitError(f"self.{name}.weight has the shape "
                                  f"{tuple(own.shape)}; it must be "
                                  f"{tuple(wanted.shape)}.")
            with torch.no_grad():
                own.copy_(wanted)
        return module(x, attention_mask)

    return function
