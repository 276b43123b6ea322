"""What goes wrong, each in one line that says what to do: the words of the command ``lowroad``."""


class Error(Exception):
    """It was attempted and did not work."""


class InputError(Error, ValueError):
    """Arguments or files that no retry can make work: a file that is missing or breaks off."""


class MissingError(Error):
    """This machine cannot run it: what is missing, and the remedy."""
