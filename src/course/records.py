"""Records of what was measured: small JSON files with their provenance.

The chapters plot records and time nothing themselves: a time differs from
machine to machine, and from run to run.
"""

import json
from pathlib import Path
from typing import Any

__all__ = ["read_record"]

_FOLDER = Path(__file__).resolve().parents[2] / "chapters" / "data"


def read_record(name: str) -> dict[str, Any]:
    """Read one record of ``chapters/data``.

    Args:
        name: Name of the file, without ``.json``.

    Returns:
        What the file holds: numbers, and where they come from.

    Raises:
        FileNotFoundError: There is no record of this name.
    """
    return json.loads((_FOLDER / f"{name}.json").read_text("utf8"))
