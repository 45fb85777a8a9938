"""The version of secondsight, written once."""

__version__ = "0.1.0"
