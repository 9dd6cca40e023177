"""Is a port free, and if not, who has it?"""

from __future__ import annotations

import socket

import psutil

from deploy.local.site import HOST


def is_free(port: int) -> bool:
    """Can a server listen on this loopback port now? Connections in TIME_WAIT do not count as taken."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def holder(port: int) -> psutil.Process | None:
    """The process that listens on ``port``; None if nobody does or we may not know."""
    try:
        connections = psutil.net_connections("tcp")
    except psutil.AccessDenied:
        return None
    for connection in connections:
        address = connection.laddr
        if connection.status == psutil.CONN_LISTEN and address and address.port == port and connection.pid:
            try:
                return psutil.Process(connection.pid)
            except psutil.NoSuchProcess:
                return None
    return None


def describe(process: psutil.Process | None) -> str:
    """A process as a user would look for it: pid and command."""
    if process is None:
        return "a process that belongs to someone else"
    try:
        command = " ".join(process.cmdline())[:120] or process.name()
    except psutil.Error:
        command = "?"
    return f"process {process.pid} ({command})"
