"""Answers as learners write them, as source text.

They were written without looking at the wrong stages of the catalogue, in
other idioms: einsum, loops, PyTorch, lists, in-place steps, helpers.
"""

import itertools
import linecache
import textwrap

import numpy as np

_number = itertools.count()


def load(source, name="answer"):
    """Run a source and give one of its functions, with a source to show."""
    source = textwrap.dedent(source).strip() + "\n"
    file = f"<answer {next(_number)}>"
    lines = source.splitlines(keepends=True)
    linecache.cache[file] = (len(source), None, lines, file)
    names = {"np": np, "__name__": "answers"}
    if "torch" in source or "F." in source or "nn." in source:
        import torch
        import torch.nn.functional as F
        names |= {"torch": torch, "F": F, "nn": torch.nn}
    exec(compile(source, file, "exec"), names)
    return names[name]


def canonical(exercise, name):
    """Write a finding with one id for all spellings of a mistake."""
    from course.exercises import find
    identity = {m.id: m.identity for m in find(exercise).mistakes}
    return "|".join(sorted(
        "+".join(sorted(identity.get(part, part) for part in each.split("+")))
        for each in name.split("|")))
