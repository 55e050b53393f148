"""What the tests of the exercises share."""

import pytest


@pytest.fixture(autouse=True)
def _no_progress(monkeypatch):
    """Keep no progress, and let a fault of the checker be seen."""
    monkeypatch.setenv("COURSE_PROGRESS", "off")
    monkeypatch.setenv("COURSE_DEBUG", "1")
