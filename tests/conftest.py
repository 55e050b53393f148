"""Every variant, a fixed seed, and one thread."""

import os
import shutil

os.environ.setdefault("OMP_NUM_THREADS", "1")
# Triton decides when it is first imported whether it interprets.
os.environ.setdefault("TRITON_INTERPRET", "1")

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

from variants import VARIANTS

torch.set_num_threads(1)

# The same examples at every run, and no verdict that depends on the clock.
settings.register_profile(
    "course", derandomize=True, deadline=None, database=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow,
                           HealthCheck.function_scoped_fixture])
settings.load_profile("course")


@pytest.fixture(params=VARIANTS, ids=lambda variant: variant.name)
def variant(request):
    return request.param


@pytest.fixture(params=[v for v in VARIANTS if v.is_torch],
                ids=lambda variant: variant.name)
def torch_variant(request):
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(20170612)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(20170612)


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window; a module's tests share it.

    It is slow where other work is done beside it: whoever waits, waits for a
    thing to happen, and up to a minute.
    """
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()
