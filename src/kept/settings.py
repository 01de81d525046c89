"""The only reader of the process environment."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SYSTEMROOT", "VIRTUAL_ENV")
"""Variables passed on to child processes; all others are withheld."""

MARK = "[secret]"
"""Text that replaces a secret."""


def kept_home() -> Path | None:
    """Folder named by `KEPT_HOME`; None if it is not set."""
    value = os.environ.get("KEPT_HOME")
    return Path(value).expanduser() if value else None


def artifacts_db() -> Path | None:
    """File with prompt artifacts, named by `KEPT_ARTIFACTS`; None if it is not set."""
    value = os.environ.get("KEPT_ARTIFACTS")
    return Path(value).expanduser() if value else None


def user_home() -> Path:
    """Home folder of the current user."""
    return Path.home()


def readable_paths() -> tuple[Path, ...]:
    """Paths that `KEPT_READABLE` names, as PATH does: commands may read them in any sandbox."""
    value = os.environ.get("KEPT_READABLE", "")
    return tuple(Path(path).expanduser().resolve() for path in value.split(os.pathsep) if path)


def is_set(name: str) -> bool:
    """True if the environment has a variable; its value is not revealed."""
    return name in os.environ


def model() -> str | None:
    """Model for proposers, named by `KEPT_MODEL`; None if it is not set."""
    return os.environ.get("KEPT_MODEL") or None


def cache_home() -> Path:
    """Folder for caches: `KEPT_CACHE`, or Kept's part of the user's cache folder."""
    named = os.environ.get("KEPT_CACHE")
    if named:
        return Path(named).expanduser()
    user = os.environ.get("XDG_CACHE_HOME")
    # the XDG standard ignores relative paths
    base = Path(user) if user and Path(user).is_absolute() else Path("~/.cache").expanduser()
    return base / "kept"


def variable(name: str) -> str | None:
    """Value of a variable that a spec or provider names; None if unset or empty."""
    return os.environ.get(name) or None


def proxy_for(url: str) -> str | None:
    """Proxy for an address, by HTTP_PROXY, HTTPS_PROXY and NO_PROXY; None without one."""
    # imported at use: slow, and few programs use the network
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    where = urlsplit(url)
    proxies = getproxies()
    if proxy_bypass(where.netloc):
        return None
    return proxies.get(where.scheme)


def processors() -> int:
    """Number of processors that this process may use; in a container not all of the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def program() -> str:
    """Command that starts Kept: `kept` if the shell finds it, else the path it was called by."""
    # imported at use: slow, and few programs print a command
    import shutil

    called = Path(sys.argv[0])
    if called.name != "kept" or shutil.which("kept"):
        return "kept"
    whole, here = called.absolute(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)


def install_command(extra: str) -> str:
    """Command that adds the packages of an extra to this installation.

    It names the packages, since an index may have another project under `kept[…]`.
    """
    # imported at use: few programs lack a package
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
    """Command that starts this interpreter: `python` if the shell finds it so, else its path."""
    import shutil

    found = shutil.which("python")
    # absolute, not resolved: a virtual environment's interpreter links to the system's
    if found is not None and Path(found).absolute() == Path(sys.executable).absolute():
        return "python"
    whole, here = Path(sys.executable), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else whole)


def debug() -> bool:
    """True if `KEPT_DEBUG` asks for the traceback of an internal error."""
    return os.environ.get("KEPT_DEBUG", "0") not in ("", "0")


def no_color() -> bool:
    """True if `NO_COLOR` forbids colours, as https://no-color.org defines it."""
    return bool(os.environ.get("NO_COLOR"))


def dumb_terminal() -> bool:
    """True if `TERM` names a terminal whose cursor cannot be moved."""
    return os.environ.get("TERM", "dumb") in ("", "dumb", "unknown")


_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH(?!OR)", re.IGNORECASE)


def names_secret(name: str) -> bool:
    """True if a variable's name implies that its value is secret."""
    return _SECRET.search(name) is not None


_LOGIN = re.compile(r"(?<=://)[^/?#\s@\"'<>]+@")
"""Login part of an address, `user:password@`."""


def without_login(text: str) -> str:
    """Remove the logins from all addresses of a text."""
    return _LOGIN.sub("", text)


def logins(text: str) -> tuple[str, ...]:
    """Logins in a text's addresses that must not be shown, each whole before its password."""
    # short passwords are not hidden alone: they would match ordinary words
    found = [one for login in _LOGIN.findall(text) for one in (login, login[:-1].partition(":")[2])]
    return tuple(one for one in found if "@" in one or len(one) >= 8)


def secrets() -> tuple[str, ...]:
    """Values of variables whose names say that they are secret, and logins; longest first."""
    found = {v for name, v in os.environ.items() if names_secret(name) and len(v) >= 8}
    found |= {one for value in os.environ.values() if "@" in value for one in logins(value)}
    return tuple(sorted(found, key=len, reverse=True))


def hide_in(secret: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Replace a secret in files by `MARK`."""
    before, after = secret.encode(), MARK.encode()
    return {path: data.replace(before, after) for path, data in files.items()}


def without_secrets(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Replace every secret of our environment in files by `MARK`."""
    for secret in secrets():
        files = hide_in(secret, files)
    return files


def child_environment(extra: Mapping[str, str], passed_on: tuple[str, ...] = ()) -> dict[str, str]:
    """Environment of a child command: harmless variables, `passed_on` by name, and `extra`."""
    names = (*PASSED_ON, *passed_on)
    passed = {name: os.environ[name] for name in names if name in os.environ}
    # `python` in a command is the interpreter that runs Kept; Debian has none by that name
    ours = str(Path(sys.executable).parent)
    passed["PATH"] = os.pathsep.join([ours, passed.get("PATH") or os.defpath])
    return {**passed, **extra}
