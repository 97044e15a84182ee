"""What runs first in the one file: unpack once to a folder nobody else can write, then start.

This file is the `__main__` of an archive that has few members, so that looking into it costs
nothing; what is unpacked lies in members `common` and `cp311` ..., archives themselves. Old
Pythons have to read it as far as the sentence that tells them so: no syntax newer than 3.5.

Invariants:
  ONE-1  Code is only ever taken from a folder that belongs to us, that no other user may write, and
         whose parents no other user may rename it in.
  ONE-2  A folder is complete as soon as it has its name; two that unpack at once do not meet.
  ONE-3  Another file of calicoctl has another folder: an upgrade mixes nothing.
Tested in `tests/image/test_calicoctl_file.py`.
"""

import os
import shutil
import stat
import sys
import tempfile
import time
import typing
import zipfile

OLDEST = (3, 11)
KEPT_DAYS = 30


def main() -> None:
    """Make the modules importable, then become calicoctl; never returns."""
    if sys.version_info < OLDEST:
        mine = ".".join(str(part) for part in sys.version_info[:2])
        sys.exit("calicoctl: needs Python 3.11 or later, and python3 here is " + mine)
    archive = os.path.abspath(sys.path[0])
    with zipfile.ZipFile(archive) as opened:
        key = opened.read("key").decode()
        tag = "cp" + str(sys.version_info[0]) + str(sys.version_info[1])
        if tag not in opened.namelist():
            sys.exit("calicoctl: this file holds nothing for Python " + tag[2:3] + "." + tag[3:])
        if os.uname().machine != opened.read("machine").decode():
            sys.exit("calicoctl: this file is for " + opened.read("machine").decode())
        modules = _modules(opened, key + "-" + tag, tag)
    sys.path[0] = modules
    from calicoctl.main import main as calicoctl

    calicoctl()


def _modules(opened: zipfile.ZipFile, name: str, tag: str) -> str:
    """The folder of the modules, unpacked before or now."""
    for parent in _parents():
        place = os.path.join(parent, name)
        if _safe(place) and os.path.exists(os.path.join(place, ".complete")):
            _used(place)
            return place
        try:
            made = _unpack(opened, parent, tag)
        except OSError:
            continue
        try:
            os.rename(made, place)
        except OSError:
            # Another start was first; or something is there that is not ours.
            if not _safe(place):
                return made
            shutil.rmtree(made, ignore_errors=True)
        _tidy(parent, name)
        return place
    sys.exit("calicoctl: no folder can be written to unpack into; set TMPDIR to one")


def _unpack(opened: zipfile.ZipFile, parent: str, tag: str) -> str:
    """A new folder with the modules for this Python. Raises OSError, and leaves nothing."""
    made = tempfile.mkdtemp(prefix=".new-", dir=parent)
    try:
        for member in ("common", tag):
            with opened.open(member) as stream, zipfile.ZipFile(stream) as inner:
                inner.extractall(made)
        with open(os.path.join(made, ".complete"), "w"):
            pass
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return made


def _parents() -> typing.Iterator[str]:
    """Where to unpack, the best first: folders that are there and safe."""
    mine = os.geteuid()
    if mine == 0:
        wanted = ["/var/cache/calicoctl"]
    else:
        home = os.path.expanduser("~")
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
        wanted = [os.path.join(base, "calicoctl")]
    # A sticky folder keeps others from renaming what is ours.
    wanted.append(os.path.join(tempfile.gettempdir(), "calicoctl-" + str(mine)))
    for path in wanted:
        if not os.path.isabs(path):
            continue
        try:
            if os.path.basename(os.path.dirname(path)) == ".cache":
                os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            os.mkdir(path, 0o700)
        except FileExistsError:
            pass
        except OSError:
            continue
        if _safe(path) and _unmovable(os.path.dirname(path)) and os.access(path, os.W_OK):
            yield path
    try:
        # Nobody shares this one: it is unpacked for this start alone.
        once = tempfile.mkdtemp(prefix="calicoctl-")
    except OSError:
        return
    import atexit

    atexit.register(shutil.rmtree, once, True)
    yield once


def _safe(path: str) -> bool:
    """Whether a folder is ours and no link, and nobody else may write in it."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return ours and not found.st_mode & 0o022


def _unmovable(path: str) -> bool:
    """Whether nobody but us and root can rename what lies in this folder, or in those above."""
    path = os.path.realpath(path)
    while True:
        try:
            found = os.stat(path)
        except OSError:
            return False
        if found.st_uid not in (0, os.geteuid()):
            return False
        if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


def _used(place: str) -> None:
    """Note once a day that a folder is in use."""
    try:
        if time.time() - os.stat(place).st_mtime > 86400:
            os.utime(place)
    except OSError:
        pass


def _tidy(parent: str, name: str) -> None:
    """Take away what other files of calicoctl left and nobody used for a month."""
    for other in os.listdir(parent):
        path = os.path.join(parent, other)
        try:
            old = time.time() - os.lstat(path).st_mtime > KEPT_DAYS * 86400
        except OSError:
            continue
        if other != name and old:
            shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main()
