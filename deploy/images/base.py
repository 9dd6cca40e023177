"""A Debian base made on this machine, for those who can't pull one: debootstrap and ``docker import``."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from cdc.errors import StackError
from cdc.saying import Say, to_nobody
from deploy.images.docker import has_image, program

RELEASE = "bookworm"
TAG = f"headwater/base:{RELEASE}"
# What no container reads: nothing installed later brings it either (Debian's own image for containers says the same).
SMALL = "path-exclude /usr/share/doc/*\npath-exclude /usr/share/man/*\npath-exclude /usr/share/locale/*\n"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def ensure(progress: Say = to_nobody) -> str:
    """Make the base unless it is there; returns its tag.

    It trusts the certificate authorities that this machine trusts: builds reach the package registries by the same way.

    Raises:
        StackError: not root, no debootstrap, or it failed (often the network: transient).
    """
    if has_image(TAG):
        return TAG
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        raise StackError(
            "a base image can't be made here: that takes root and debootstrap",
            fix="apt-get install debootstrap, or name a base that can be pulled: --base debian:bookworm-slim",
        )
    progress(f"making {TAG} with debootstrap")
    with tempfile.TemporaryDirectory(prefix="headwater-base-") as name:
        folder = Path(name)
        command = ["debootstrap", "--variant=minbase", "--include=ca-certificates", RELEASE, name]
        _run(command, "debootstrap")
        if CERTIFICATES.exists():
            shutil.copyfile(CERTIFICATES, folder / str(CERTIFICATES).lstrip("/"))
        (folder / "etc/dpkg/dpkg.cfg.d/small").write_text(SMALL)
        for cache in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale"):
            shutil.rmtree(folder / cache, ignore_errors=True)
            (folder / cache).mkdir(parents=True)
        for partial in ("var/cache/apt/archives/partial", "var/lib/apt/lists/partial"):
            (folder / partial).mkdir()
        _import(name)
    return TAG


def _import(folder: str) -> None:
    tar = subprocess.Popen([program("tar"), "-C", folder, "--numeric-owner", "-c", "."], stdout=subprocess.PIPE)
    command = [program("docker"), "import", "--change", 'CMD ["bash"]', "-", TAG]
    assert tar.stdout is not None
    # Closed here as soon as docker is gone: tar would wait for ever for somebody to read on.
    with tar.stdout as packed:
        done = subprocess.run(command, stdin=packed, capture_output=True, check=False)
    if tar.wait() != 0 or done.returncode != 0:
        raise StackError(f"docker import failed: {done.stderr.decode(errors='replace').strip()}")


def _run(command: list[str], title: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        lines = done.stdout.decode(errors="replace").strip().splitlines()
        raise StackError(f"{title} failed: " + "\n".join(lines[-5:]), fix="look at the network and run it again")
