"""Files of this machine that survive a loss of power: a rename or a close alone does not see to that."""

from __future__ import annotations

import errno
import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_SIDE_BY_SIDE = 16
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}


def sync(path: str) -> None:
    """Wait until a file's content, or a folder's names, are on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:  # some file systems cannot do it for folders
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(opened)


def sync_below(path: str) -> None:
    """Wait until a folder with all it holds is on the disk."""
    found = [path]
    for folder, folders, files in os.walk(path):
        found += [f"{folder}/{name}" for name in (*folders, *files)]
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as threads:
        list(threads.map(sync, found))


def write_whole(path: str, content: bytes, *, overwrite: bool, private: bool = False) -> bool:
    """Make a file with all of its content or not at all; return False where there is one that may not be replaced.

    Parameters
    ----------
    path, content
        The file.
    overwrite
        Whether a file that is there may be replaced.
    private
        Whether only the user may read and write the file (mode 0600), whatever the umask is.

    Raises
    ------
    NotImplementedError
        If the file system cannot refuse a name that is taken.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:12]}.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        mode = 0o600 if private else 0o666  # the umask takes from it
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            target.with_name(f".{target.name}.crc").unlink(missing_ok=True)  # Hadoop's, of the file as it was
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
