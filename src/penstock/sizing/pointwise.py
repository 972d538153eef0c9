"""Which upstream and downstream tasks a rescale connects. Pure arithmetic, without imports: it is sent to executors.

The groups are those of Flink's pointwise edges: consecutive tasks, as evenly as possible. Flink rounds the borders down
if there are at least as many writers as readers, and up if there are fewer. So of 3 writers and 2 readers the last
reader has two writers, and of 2 writers and 3 readers the first writer has two readers.
"""

from __future__ import annotations


def writers_of(reader: int, writers: int, readers: int) -> range:
    """Return the writers whose rows a reader gets; of at least as many writers as readers.

    Parameters
    ----------
    reader
        The index of the reader.
    writers, readers
        The numbers of upstream and downstream tasks.

    Examples
    --------
    >>> [list(writers_of(reader, 3, 2)) for reader in range(2)]
    [[0], [1, 2]]
    """
    return range(reader * writers // readers, (reader + 1) * writers // readers)


def readers_of(writer: int, writers: int, readers: int) -> range:
    """Return the readers that get the rows of a writer.

    Parameters
    ----------
    writer
        The index of the writer.
    writers, readers
        The numbers of upstream and downstream tasks.

    Examples
    --------
    >>> [list(readers_of(writer, 2, 3)) for writer in range(2)]
    [[0, 1], [2]]
    >>> [list(readers_of(writer, 3, 2)) for writer in range(3)]
    [[0], [1], [1]]
    """
    end = -(-(writer + 1) * readers // writers)
    if writers >= readers:
        return range(end - 1, end)
    return range(-(-writer * readers // writers), end)
