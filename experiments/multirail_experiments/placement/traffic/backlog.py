"""Unacknowledged bytes of a stream at a given rate, which the policy `backlog` looks at.

    [backlog]   rates_mbit_s (0: as fast as it can), message_bytes (several), and
                beside (streams of other processes on the same path)

A row's `streams` is the rate in Mbit/s, and its `pattern` says the rest.
"""

from multirail_experiments.placement.network import Stream

SECONDS, WARM_UP_S = 1.0, 0.4
QUICK_SECONDS, QUICK_WARM_UP_S = 0.3, 0.2


def pattern(message_bytes, beside):
    return f"messages of {message_bytes} B" + (f", beside {beside} streams" if beside else "")


def rows(net, loads, table, quick):
    seconds, warm_up_s = (
        (QUICK_SECONDS, QUICK_WARM_UP_S)
        if quick
        else (table.get("seconds", SECONDS), table.get("warm_up_s", WARM_UP_S))
    )
    one, other, third = net.hosts[:3]
    for beside in table["beside"]:
        for message_bytes in table["message_bytes"]:
            for rate_mbit_s in table["rates_mbit_s"]:
                wanted = [Stream(one, other, 1, rate_mbit_s, message_bytes)] + (
                    [Stream(one, third, beside)] if beside else []
                )
                run, _ = loads.run(wanted, warm_up_s, seconds)
                # A host reports its streams in the order in which they were requested.
                of_stream = run.said[one.name]["sent"][0]
                rate = (
                    sum(row["bytes"] for row in run.said[other.name]["received"])
                    * 8
                    / 1e6
                    / seconds
                )
                yield {
                    "pattern": pattern(message_bytes, beside),
                    "streams": rate_mbit_s,
                    "rate_mbit_s": round(rate, 2),
                    "backlog_bytes": of_stream["backlog_mean"],
                    "backlog_median_bytes": of_stream["backlog_median"],
                    "cpu_idle_share": run.cpu_idle_share,
                }
