"""The version of this package, which is that of the server it was made with."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("tracehold")
except PackageNotFoundError:  # used from its sources
    __version__ = "0"
