"""``python -m course.exercises``: the exercises on the command line."""

import sys

from course.exercises.cli import main

if __name__ == "__main__":
    sys.exit(main())
