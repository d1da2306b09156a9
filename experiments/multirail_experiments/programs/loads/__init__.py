"""What programs are measured with: each module is a load.

A load is a module with

    lacks()              why it cannot be measured here; None if it can
    unit(load)           the unit of its values
    serving(lab, load)   a context manager: starts what it needs on host b; its value is a function
                         that runs the program on host a once and returns the value

Servers listen on all addresses: Multipath TCP refuses subflows to others than that of its listener.
`load` is its table of plan.toml. `lab` starts commands as the line does (lines.py).
"""
