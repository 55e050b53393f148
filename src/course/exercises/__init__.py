"""Exercises that name the mistake.

::

    from course.exercises import check, hint, progress, solution

    check("softmax", softmax)      # run on fresh inputs; says what went wrong
    hint("softmax")                # the next hint, fitted to your last mistake
    solution("softmax")            # after a pass, or three tries
    progress()                     # what is done and what is left

Everything runs on NumPy alone. PyTorch is imported only by the exercises
that ask for it.
"""

from course.exercises.hints import hint, solution
from course.exercises.judge import check
from course.exercises.ledger import export as export_progress
from course.exercises.ledger import restore as restore_progress
from course.exercises.overview import progress
from course.exercises.quizzes import quiz
from course.exercises.registry import find, register, tasks
from course.exercises.result import Result

__all__ = ["Result", "check", "export_progress", "find", "hint", "progress",
           "quiz", "register", "restore_progress", "solution", "tasks"]
