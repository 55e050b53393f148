"""The exercises, by chapter.

Importing a module of this package registers its exercises and its quiz. A
later chapter adds a module ``chNN`` and its name in ``CHAPTERS``; code outside
the course calls ``course.exercises.registry.register`` itself.
"""

import importlib

CHAPTERS = ("ch01", "ch02", "ch03", "ch04", "ch05", "ch06", "ch07", "ch08",
            "ch09", "ch10", "ch11", "ch12", "ch13", "ch14", "ch15", "ch16",
            "ch17")


def load() -> None:
    """Register the exercises of all chapters."""
    for name in CHAPTERS:
        importlib.import_module(f"{__name__}.{name}")
