"""The only reader of the process environment."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SYSTEMROOT", "VIRTUAL_ENV")
"""Variables that a child process may see; everything else stays with us."""

MARK = "[secret]"
"""What stands in the place of a secret."""


def kept_home() -> Path | None:
    """The folder that `KEPT_HOME` names, if it does."""
    value = os.environ.get("KEPT_HOME")
    return Path(value).expanduser() if value else None


def artifacts_db() -> Path | None:
    """The file with prompt artifacts that `KEPT_ARTIFACTS` names, if it does."""
    value = os.environ.get("KEPT_ARTIFACTS")
    return Path(value).expanduser() if value else None


def user_home() -> Path:
    """The folder of whoever runs this."""
    return Path.home()


def readable_paths() -> tuple[Path, ...]:
    """Paths that `KEPT_READABLE` names, as PATH does: commands may read them in any sandbox."""
    value = os.environ.get("KEPT_READABLE", "")
    return tuple(Path(path).expanduser().resolve() for path in value.split(os.pathsep) if path)


def is_set(name: str) -> bool:
    """Whether the environment has a variable; what it holds is nobody's business."""
    return name in os.environ


def model() -> str | None:
    """The model that `KEPT_MODEL` names for proposers, if it does."""
    return os.environ.get("KEPT_MODEL") or None


def cache_home() -> Path:
    """Where what can be fetched again is kept: `KEPT_CACHE`, or Kept's part of the user's cache."""
    named = os.environ.get("KEPT_CACHE")
    if named:
        return Path(named).expanduser()
    user = os.environ.get("XDG_CACHE_HOME")
    # the standard says that a relative one is to be ignored
    base = Path(user) if user and Path(user).is_absolute() else Path("~/.cache").expanduser()
    return base / "kept"


def variable(name: str) -> str | None:
    """What the environment holds for a name that a spec or a provider gives; None for nothing."""
    return os.environ.get(name) or None


def proxy_for(url: str) -> str | None:
    """The proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name for an address, if they do."""
    # at use: it is slow to import, and few programs talk to anybody
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    where = urlsplit(url)
    proxies = getproxies()
    if proxy_bypass(where.netloc):
        return None
    return proxies.get(where.scheme)


def processors() -> int:
    """Processors that this process may use, which in a container are not all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def program() -> str:
    """What to type for Kept: `kept` where the shell finds it, else the path it was called by."""
    # at use: it is slow to import, and few programs tell anybody what to type
    import shutil

    called = Path(sys.argv[0])
    if called.name != "kept" or shutil.which("kept"):
        return "kept"
    whole, here = called.absolute(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)


def install_command(extra: str) -> str:
    """Command that adds the packages of an extra to this installation.

    It names the packages, for `kept[…]` would be looked up in an index, where it may be another's.
    """
    # at use: few programs lack anything
    import shlex
    from importlib.metadata import PackageNotFoundError, requires
    from importlib.util import find_spec

    try:
        listed = requires("kept") or []
    except PackageNotFoundError:
        listed = []
    mark = re.compile(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]")
    found = [row.partition(";") for row in listed]
    packages = [shlex.quote(name.strip()) for name, _, when in found if mark.search(when)]
    if not packages:
        return f"install the extra `{extra}` of kept from where kept was installed"
    python = shlex.quote(_python())
    pip = f"{python} -m pip" if find_spec("pip") else "uv pip"
    where = "" if find_spec("pip") else f" --python {python}"
    return f"{pip} install{where} {' '.join(packages)}"


def _python() -> str:
    """What to type for this interpreter."""
    import shutil

    found = shutil.which("python")
    # not resolved: the interpreter of an environment is a link to that of the system
    if found is not None and Path(found).absolute() == Path(sys.executable).absolute():
        return "python"
    whole, here = Path(sys.executable), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)


def debug() -> bool:
    """Whether `KEPT_DEBUG` asks for the traceback of an internal error."""
    return os.environ.get("KEPT_DEBUG", "0") not in ("", "0")


def no_color() -> bool:
    """Whether `NO_COLOR` forbids colours, as https://no-color.org defines it."""
    return bool(os.environ.get("NO_COLOR"))


def dumb_terminal() -> bool:
    """Whether `TERM` says that the cursor cannot be moved."""
    return os.environ.get("TERM", "dumb") in ("", "dumb", "unknown")


_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH(?!OR)", re.IGNORECASE)


def names_secret(name: str) -> bool:
    """Whether the name of a variable says that its value is secret."""
    return _SECRET.search(name) is not None


_LOGIN = re.compile(r"(?<=://)[^/?#\s@\"'<>]+@")
"""Who an address is asked as."""


def without_login(text: str) -> str:
    """A text whose addresses do not say as whom they are asked."""
    return _LOGIN.sub("", text)


def logins(text: str) -> tuple[str, ...]:
    """What must not be shown of the addresses in a text; longest first."""
    found = [one for login in _LOGIN.findall(text) for one in (login, login[:-1].partition(":")[2])]
    return tuple(one for one in found if "@" in one or len(one) >= 8)


def secrets() -> tuple[str, ...]:
    """Values of variables whose names say that they are secret, and logins; longest first."""
    found = {v for name, v in os.environ.items() if names_secret(name) and len(v) >= 8}
    found |= {one for value in os.environ.values() if "@" in value for one in logins(value)}
    return tuple(sorted(found, key=len, reverse=True))


def hide_in(secret: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Files with a mark in the place of a secret."""
    before, after = secret.encode(), MARK.encode()
    return {path: data.replace(before, after) for path, data in files.items()}


def without_secrets(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Files without any secret of our environment."""
    for secret in secrets():
        files = hide_in(secret, files)
    return files


def child_environment(extra: Mapping[str, str], passed_on: tuple[str, ...] = ()) -> dict[str, str]:
    """What a command is started with: the few harmless variables, and those it is given."""
    names = (*PASSED_ON, *passed_on)
    passed = {name: os.environ[name] for name in names if name in os.environ}
    # so that `python` in a command is the one that runs Kept; Debian has none by that name
    ours = str(Path(sys.executable).parent)
    passed["PATH"] = os.pathsep.join([ours, passed.get("PATH") or os.defpath])
    return {**passed, **extra}
