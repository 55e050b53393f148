"""Find out where the book's sources live online, so that nobody edits a name.

The address comes from the environment or from git, in this order:

1. ``COURSE_REPOSITORY``, for example ``https://github.com/name/course``.
   Set but empty it means "nowhere": no buttons.
2. ``GITHUB_REPOSITORY`` and ``GITHUB_SERVER_URL``, which GitHub's runners set.
3. The address of git's remote ``origin``, or of the only remote there is.

A fork needs no change: its remote, or its runner, says where it lives.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# An address as git writes it: https://host/owner/name.git, ssh://git@host/...
# or git@host:owner/name.git. What stands before an "@" may be a secret.
_ADDRESS = re.compile(
    r"(?:(?:https?|ssh|git)://)?(?:[^@/\s]+@)?(?P<host>[\w.-]+\.[a-z]+)"
    r"(?::\d+)?[:/](?P<owner>[\w./~-]+)/(?P<name>[\w.-]+?)(?:\.git)?/?")
_HOSTS = {"github.com": "github", "gitlab.com": "gitlab"}


@dataclass(frozen=True)
class Repository:
    """A repository that readers can reach.

    Attributes:
        url: Its page, without credentials and without ``.git``.
        branch: The branch whose files the buttons open.
        provider: "github" or "gitlab".
    """

    url: str
    branch: str
    provider: str

    @property
    def pages(self) -> str | None:
        """Where GitHub publishes the site of this repository."""
        if self.provider != "github":
            return None
        owner, name = self.url.split("/")[-2:]
        home = f"https://{owner.lower()}.github.io/"
        return home if name.lower() == home[8:-1] else f"{home}{name}/"


def find_repository(folder: Path, environ: Mapping[str, str] = os.environ
                    ) -> Repository | None:
    """Find the repository, or None if there is none that readers can reach.

    Args:
        folder: A folder of the working tree.
        environ: The environment's variables.
    """
    address = environ.get("COURSE_REPOSITORY")
    if address is None and environ.get("GITHUB_REPOSITORY"):
        server = environ.get("GITHUB_SERVER_URL", "https://github.com")
        address = f"{server}/{environ['GITHUB_REPOSITORY']}"
    if address is None:
        address = _remote_address(folder)
    found = _ADDRESS.fullmatch(address.strip())
    if found is None or found["host"].lower() not in _HOSTS:
        return None
    host = found["host"].lower()
    return Repository(f"https://{host}/{found['owner']}/{found['name']}",
                      find_branch(folder, environ), _HOSTS[host])


def find_branch(folder: Path, environ: Mapping[str, str] = os.environ) -> str:
    """Find the branch that the buttons should open.

    Args:
        folder: A folder of the working tree.
        environ: The environment's variables; ``COURSE_BRANCH`` decides.
    """
    if environ.get("COURSE_BRANCH"):
        return environ["COURSE_BRANCH"]
    if (environ.get("GITHUB_REF_TYPE") == "branch"
            and environ.get("GITHUB_REF_NAME")):
        return environ["GITHUB_REF_NAME"]
    head = _git(folder, "symbolic-ref", "--short", "refs/remotes/origin/HEAD")
    return head.partition("/")[2] or "main"


def find_site(repository: Repository | None,
              environ: Mapping[str, str] = os.environ) -> str | None:
    """Find the address at which the site is published, if it is.

    Args:
        repository: What ``find_repository`` gave.
        environ: The environment's variables; ``COURSE_SITE`` decides.
    """
    site = environ.get("COURSE_SITE")
    if site is None and repository is not None:
        site = repository.pages
    return site.rstrip("/") + "/" if site else None


def _remote_address(folder: Path) -> str:
    remotes = _git(folder, "remote").split()
    if "origin" in remotes or len(remotes) == 1:
        name = "origin" if "origin" in remotes else remotes[0]
        return _git(folder, "remote", "get-url", name)
    return ""


def _git(folder: Path, *arguments: str) -> str:
    """What git prints, or nothing where it fails or is not installed."""
    try:
        run = subprocess.run(["git", *arguments], cwd=folder, text=True,
                             capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""
