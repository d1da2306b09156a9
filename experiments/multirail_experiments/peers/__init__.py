"""Programs that people use today, measured beside multirail on the same networks.

Programs for messages (tcp, mptcp, openmpi, ucx, iperf3) are modules with

    NAME                                     the line's name
    available(lab)                           None, or why it cannot run here
    session(lab)                             a context manager; its value has
                                             measure(message_bytes, seconds) -> rows
    messages(lab, sizes, repeats, seconds)   rows with a list of one value a repeat

Programs for files (cp, gridftp, rsync, aria2, curl) have what files.py says. A failure is a row of
the kind `skipped` with a `reason`.
"""
