"""The only package that calls Spark's JVM. Its import raises `SessionError` if PySpark is missing or too old."""

from penstock.errors import SessionError

try:
    from pyspark import __version__ as _pyspark_version
except ModuleNotFoundError as error:
    if error.name != "pyspark":  # a package that PySpark needs is missing
        raise
    raise SessionError.unsupported_spark(None) from error
if int(_pyspark_version.partition(".")[0]) < 4:  # has none of the modules that this package imports
    raise SessionError.unsupported_spark(_pyspark_version)
