"""Connections of upstream tasks (writers) and downstream tasks (readers) in a rescale. No imports: copied to executors.

The connections are those of Flink's pointwise edges: groups of consecutive tasks, as even as possible. Flink rounds the
borders of groups up if there are fewer writers than readers, else down. With 3 writers and 2 readers, the last reader
has two writers; with 2 writers and 3 readers, the first writer has two readers.
"""

from __future__ import annotations


def writers_of(reader: int, writers: int, readers: int) -> range:
    """Return the writers whose rows a reader gets, if there are at least as many writers as readers.

    >>> [list(writers_of(reader, 3, 2)) for reader in range(2)]
    [[0], [1, 2]]
    """
    return range(reader * writers // readers, (reader + 1) * writers // readers)


def readers_of(writer: int, writers: int, readers: int) -> range:
    """Return the readers that get the rows of a writer.

    >>> [list(readers_of(writer, 2, 3)) for writer in range(2)]
    [[0, 1], [2]]
    >>> [list(readers_of(writer, 3, 2)) for writer in range(3)]
    [[0], [1], [1]]
    """
    end = -(-(writer + 1) * readers // writers)
    if writers >= readers:
        return range(end - 1, end)
    return range(-(-writer * readers // writers), end)
