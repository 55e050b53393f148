"""Options and environment of the peers' suite."""

import os

# Set before any of them is imported.
os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Another peer imports Triton before our kernels do.
os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_addoption(parser):
    parser.addoption("--record", action="store_true",
                     help="write what was measured to chapters/data")
