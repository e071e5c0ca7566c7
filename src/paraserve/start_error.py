"""The one kind of failure that ends a start. On the ground floor: every room can find out that something is wrong."""


class StartError(Exception):
    """The server cannot start as configured. The message is one line for the operator: what is wrong, what to do."""
