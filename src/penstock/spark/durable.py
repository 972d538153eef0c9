"""Local files that survive a power failure, which a rename or a close alone does not ensure."""

from __future__ import annotations

import errno
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_THREADS = 16
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}


def sync(path: str) -> None:
    """Wait until the content of a file, or the names in a folder, are on disk."""
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
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(sync, paths))


def write_atomically(path: str, content: bytes, *, overwrite: bool, private: bool = False) -> bool:
    """Create a file with all of its content or not at all; return False if an existing file may not be replaced.

    Parameters
    ----------
    private
        Whether only the user may read and write the file (mode 0600), regardless of the umask.

    Raises
    ------
    NotImplementedError
        If the file system cannot refuse an existing name.
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
        if not overwrite and error.errno in _NO_LINKS:
            raise NotImplementedError(str(error)) from error
        raise
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()
    sync(str(target.parent))
    return True
