"""Several processes on one port: a supervisor that starts, watches and stops them, and what runs in each.

The supervisor serves nobody and holds what there is once: the sockets, the engine that is ours, the count of requests
within the limits of admission. A worker is a process of today's kind with an engine that somebody else has started.
"""
