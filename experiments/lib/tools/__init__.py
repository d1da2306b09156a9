"""What people use today, measured beside multirail on the same networks.

Tools of messages (tcp, mptcp, openmpi, ucx, iperf3) have

    NAME                                         the line's name
    available(lab)                               None, or why it cannot run here
    session(lab)                                 a context manager; what it gives has measure(message_bytes, seconds) -> rows
    messages(lab, sizes, repeats, seconds)       rows with a list of one value a repeat

and those of files (cp, gridftp, rsync, aria2, curl) what files.py says. What fails is a row of the
kind `skipped` with a `reason`.
"""
