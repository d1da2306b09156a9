"""libtorrent in a private swarm: the root seeds, and all hosts know each other.

Clients listen on all addresses. Where hosts have several rails, each two clients connect on each.

There is no tracker, DHT or local discovery. Each host runs this module:

    torrent JOB.json HOST    prints `ready`, begins after a line `go`, and prints `done` and the
                             times when each torrent was complete

Key of a line: `roots`, the hosts that seed a file each, at the same time; default: the first host.
"""

import contextlib
import json
import pathlib
import sys
import time

PORT = 6881
LOOK_S = 0.005

# Only the swarm itself.
PRIVATE = {
    "enable_dht": False,
    "enable_lsd": False,
    "enable_upnp": False,
    "enable_natpmp": False,
    "alert_mask": 0,
}
# The best settings found for few hosts joined by slow links; the README of mob/scenarios says what
# was tried.
TUNED = {
    # uTP yields to all other traffic and costs more CPU time.
    "enable_outgoing_utp": False,
    "enable_incoming_utp": False,
    # Uploads go to the peers that take them fastest, and to as many as there are.
    "choking_algorithm": 1,
    "seed_choking_algorithm": 1,
    "unchoke_slots_limit": -1,
    "unchoke_interval": 1,
    "rate_choker_initial_threshold": 1024,
    # Queues are short, because a piece requested from a slow peer takes long.
    "max_out_request_queue": 64,
    "request_queue_time": 1,
    "request_timeout": 10,
    "strict_end_game_mode": False,
    "close_redundant_connections": False,
    "allow_multiple_connections_per_ip": True,
    "connection_speed": 1000,
    "torrent_connect_boost": 255,
    "connections_limit": 1000,
    "peer_turnover": 0,
    "no_connect_privileged_ports": False,
    "send_buffer_watermark": 1 << 20,
    "send_buffer_low_watermark": 64 << 10,
    "hashing_threads": 1,
    "aio_threads": 1,
}


def settings(job):
    return {
        **PRIVATE,
        **(TUNED if job["is_tuned"] else {}),
        **job.get("settings", {}),
        "listen_interfaces": f"0.0.0.0:{PORT}",
        # A connection on each rail: libtorrent closes a second one to the same peer by default.
        "allow_multiple_connections_per_pid": job["rails"] > 1,
    }


def main(job_path, name):
    import libtorrent

    job = json.loads(pathlib.Path(job_path).read_text())
    host = job["hosts"][name]
    session = libtorrent.session(settings(job))
    handles = []
    for root, path in job["torrents"].items():
        torrent = libtorrent.add_torrent_params()
        torrent.ti = libtorrent.torrent_info(path)
        torrent.save_path = job["source"] if name == root else host["folder"]
        flags = libtorrent.torrent_flags
        torrent.flags = flags.seed_mode if name == root else flags.update_subscribe
        handles.append(session.add_torrent(torrent))
    is_running = libtorrent.torrent_status.downloading, libtorrent.torrent_status.seeding
    while any(handle.status().state not in is_running for handle in handles):
        time.sleep(LOOK_S)
    print("ready", flush=True)
    sys.stdin.readline()
    for other, its in job["hosts"].items():
        # Of each two hosts, one connects.
        if other > name:
            for address in its["addresses"]:
                for handle in handles:
                    handle.connect_peer((address, PORT))
    complete = {}
    while len(complete) < len(handles):
        for place, handle in enumerate(handles):
            if place not in complete and handle.status().is_seeding:
                complete[place] = time.monotonic()
        time.sleep(LOOK_S)
    print("done", *(complete[place] for place in range(len(handles))), flush=True)
    # The host uploads until it is ended.
    sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])


def available(_net):
    try:
        import libtorrent  # noqa: F401
    except ImportError:
        return "not installed: libtorrent"
    return None


def make_torrent(file, piece_bytes):
    import libtorrent

    files = libtorrent.file_storage()
    libtorrent.add_files(files, str(file))
    made = libtorrent.create_torrent(files, piece_bytes, libtorrent.create_torrent.v1_only)
    made.set_priv(True)
    libtorrent.set_piece_hashes(made, str(file.parent))
    return libtorrent.bencode(made.generate())


@contextlib.contextmanager
def session(net, line):
    yield Swarm(net, line)


class Swarm:
    """A new swarm for each broadcast."""

    def __init__(self, net, line):
        self.net, self.line = net, line

    def broadcast(self, file, begin, limit_s, point):
        net, setup = self.net, time.monotonic()
        roots = self.line.get("roots", [net.root.name])
        first, size_bytes = roots[0], file.stat().st_size
        files = {first: file} | {root: point.file(size_bytes, root) for root in roots[1:]}
        torrents, job_path = {}, net.work / "torrent-job.json"
        for root, source in files.items():
            torrents[root] = net.work / f"torrent-{root}"
            torrents[root].write_bytes(make_torrent(source, self.line.get("piece_kib", 64) << 10))
        before_s = time.monotonic() - setup
        hosts = {
            host.name: {"addresses": host.addresses, "folder": str(net.folder(host))}
            for host in net.hosts
        }
        job = {
            "torrents": {root: str(path) for root, path in torrents.items()},
            "source": str(file.parent),
            "hosts": hosts,
            "rails": len(net.root.addresses),
            "is_tuned": self.line.get("is_tuned", False),
            "settings": self.line.get("settings", {}),
        }
        job_path.write_text(json.dumps(job))
        program = [sys.executable, "-B", "-m", __spec__.name, job_path]
        with net.peers(lambda host: [*program, host.name], ready="ready") as peers:
            setup_s = time.monotonic() - setup
            peers.reset_cpu()
            began = begin()
            peers.tell("go")
            done = peers.wait_for("done", len(net.hosts), limit_s)
            ends = zip(*(map(float, times.split()) for times in done.values()))
            each_s = [max(times) - began for times in ends]
            return {
                "seconds": max(each_s),
                "each_s": each_s,
                "setup_s": setup_s,
                # The clients run, but the file is hashed anew.
                "before_s": before_s,
                "peers_cpu_s": peers.cpu_s(),
                "received": [
                    (source, net.folder(host) / source.name)
                    for root, source in files.items()
                    for host in net.hosts
                    if host.name != root
                ],
            }
