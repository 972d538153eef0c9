"""Local files: writes that survive a power failure, and atomic renames that never copy."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile

_SYNC_THREADS = 16
_LINKS_UNSUPPORTED = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}
_CURRENT_DIRECTORY = -100  # AT_FDCWD
_NO_REPLACE = 1  # RENAME_NOREPLACE
_EXCHANGE = 2  # RENAME_EXCHANGE
_TARGET_EXISTS = {errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR}
_FLAG_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS}
_OCTAL_ESCAPE = re.compile(r"\\([0-7]{3})")  # in /proc/self/mountinfo: \040 for a space


def obstacle_to_create(path: Path) -> str | None:
    """Return why a folder and files in it cannot be created, None if they can; the nearest existing parent decides."""
    try:
        existing = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
        if not existing.is_dir():
            return f"{existing} is a file"
        with TemporaryFile(dir=existing):  # a check of permissions misses file systems that accept no files
            return None
    except PermissionError as error:
        return f"this user may not write to {error.filename and Path(error.filename).parent}"
    except OSError as error:
        return f"{existing} accepts no files: {error.strerror}"


def sync(path: str) -> None:
    """Wait until the content of a file, or the list of a folder's entries, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:  # some file systems cannot sync folders
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def sync_tree(path: str) -> None:
    """Wait until a folder and everything in it are on disk."""
    paths = [path]
    for folder, folders, files in os.walk(path):
        paths += [f"{folder}/{name}" for name in (*folders, *files)]
    with ThreadPoolExecutor(_SYNC_THREADS) as threads:
        list(threads.map(sync, paths))


def write_atomically(path: str, content: bytes, *, overwrite: bool, private: bool = False) -> bool:
    """Create a file with all of its content or not at all; return False if it exists and `overwrite` is False.

    `private` says whether only the user may read and write the file (mode 0600). Raise `NotImplementedError` if
    `overwrite` is False and the file system has no hard links, whose creation fails if the file exists already.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        mode = 0o600 if private else 0o666  # reduced by the umask
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            target.with_name(f".{target.name}.crc").unlink(missing_ok=True)  # Hadoop's checksum of the old content
            temporary.rename(target)
        else:
            os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError as error:
        if not overwrite and error.errno in _LINKS_UNSUPPORTED:
            raise NotImplementedError(str(error)) from error
        raise
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    sync(str(target.parent))
    return True


def exchange(path: str, other_path: str) -> bool:
    """Swap two paths atomically (Linux, ``renameat2``); return False on any error, such as missing support."""
    return _renameat2(path, other_path, _EXCHANGE) == 0


def rename(source: str, target: str) -> bool:
    """Rename to a path that does not exist, together with the checksum file that Hadoop writes beside a file.

    Return False if the target exists, or the source or the target's folder does not. Unlike Hadoop's rename between
    file systems, this never copies, as an interrupted copy would leave an incomplete target. Raise `OSError` if the
    file system cannot rename, for instance between two mount points.
    """
    source_checksum, target_checksum = _checksum_file(source), _checksum_file(target)
    if os.path.lexists(target_checksum) and not os.path.lexists(source_checksum) and not os.path.lexists(target):
        Path(target_checksum).unlink(missing_ok=True)  # leftover checksum of an earlier target
    error = _renameat2(source, target, _NO_REPLACE)
    if error in _FLAG_UNSUPPORTED:
        error = _rename_after_check(source, target)
    if error == errno.ENOENT or error in _TARGET_EXISTS:
        return False
    if error:
        raise OSError(error, os.strerror(error), source, None, target)
    if os.path.lexists(source_checksum):
        Path(source_checksum).rename(target_checksum)
    return True


def _checksum_file(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc"


def _rename_after_check(source: str, target: str) -> int:
    """Rename where the system cannot reject an existing target itself; return the error number, or 0."""
    if os.path.lexists(target):
        return errno.EEXIST
    try:
        Path(source).rename(target)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def is_volume(folder: str) -> bool:
    """Whether a folder is a mount point: nothing can be renamed between it and its parent."""
    path = os.path.realpath(folder)
    return os.path.ismount(path) or path in _mount_points()


def volumes_below(folder: str) -> list[str]:
    """Return the mount points below a folder, as far as the system reports them."""
    prefix = os.path.realpath(folder).rstrip("/") + "/"
    return sorted(path for path in _mount_points() if path.startswith(prefix))


def _mount_points() -> set[str]:
    """Return all mount points, including bind mounts, which ``os.path.ismount`` does not detect."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:  # not Linux
        return set()
    return {_OCTAL_ESCAPE.sub(lambda match: chr(int(match[1], 8)), line.split(" ")[4]) for line in lines}


def _renameat2(source: str, target: str, flag: int) -> int:
    """Rename with a flag; return the error number, or 0."""
    function = _load_renameat2()
    if function is None:
        return errno.ENOSYS
    arguments = _CURRENT_DIRECTORY, os.fsencode(source), _CURRENT_DIRECTORY, os.fsencode(target), flag
    return ctypes.get_errno() if function(*arguments) != 0 else 0


@lru_cache(maxsize=1)
def _load_renameat2() -> ctypes._NamedFuncPointer | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return function
