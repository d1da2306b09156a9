"""`multirail cp`, from `multirail serve`."""

import contextlib

NAME = "multirail cp"
PORT = 7820


def available(_lab):
    return None


def serving(lab, source):
    return serving_with(lab, source, NAME, PORT, [])


@contextlib.contextmanager
def serving_with(lab, source, name, port, options, client_options=()):
    """`options` are those of both sides."""
    server = [
        lab.multirail,
        "serve",
        "--root",
        source.root,
        "--token-file",
        lab.token_file,
        "--listen",
        f"0.0.0.0:{port}",
        *options,
    ]

    def command(load, target):
        # A folder keeps its name inside the target.
        what = f"{load.folder}/{load.names[0]}" if load.is_one else load.folder
        return [
            lab.multirail,
            "cp",
            *options,
            *client_options,
            *([] if load.is_one else ["-r"]),
            "--token-file",
            lab.token_file,
            f"mr://{lab.address('b', 0)}:{port}/{what}",
            f"{target}/",
        ]

    with lab.start("b", *server, ready=lab.listens("b", port)):
        yield [(name, command)]
