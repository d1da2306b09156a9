"""libtorrent in a private swarm: the root seeds, and all hosts know each other.

Clients listen on all addresses. Where hosts have several rails, each two clients connect on each.

There is no tracker, DHT or local discovery. Each host runs this module:

    torrent JOB.json HOST    prints `ready`, begins after a line `go`, and prints `done` and the
                             time when it is complete
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
    torrent = libtorrent.add_torrent_params()
    torrent.ti, torrent.save_path = libtorrent.torrent_info(job["torrent"]), host["folder"]
    is_root = name == job["root"]
    torrent.flags = (
        libtorrent.torrent_flags.seed_mode if is_root else libtorrent.torrent_flags.update_subscribe
    )
    handle = session.add_torrent(torrent)
    while handle.status().state not in (
        libtorrent.torrent_status.downloading,
        libtorrent.torrent_status.seeding,
    ):
        time.sleep(LOOK_S)
    print("ready", flush=True)
    sys.stdin.readline()
    for other, its in job["hosts"].items():
        # Of each two hosts, one connects.
        if other > name:
            for address in its["addresses"]:
                handle.connect_peer((address, PORT))
    while not handle.status().is_seeding:
        time.sleep(LOOK_S)
    print(f"done {time.monotonic()}", flush=True)
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

    def broadcast(self, file, begin, limit_s, _point):
        net, setup = self.net, time.monotonic()
        torrent, job_path = net.work / "torrent", net.work / "torrent-job.json"
        torrent.write_bytes(make_torrent(file, self.line.get("piece_kib", 64) << 10))
        before_s = time.monotonic() - setup
        hosts = {
            host.name: {"addresses": host.addresses, "folder": str(net.folder(host))}
            for host in net.hosts
        }
        hosts[net.root.name]["folder"] = str(file.parent)
        job = {
            "torrent": str(torrent),
            "root": net.root.name,
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
            return {
                "seconds": max(map(float, done.values())) - began,
                "setup_s": setup_s,
                # The clients run, but the file is hashed anew.
                "before_s": before_s,
                "peers_cpu_s": peers.cpu_s(),
                "received": [
                    net.folder(host) / file.name for host in net.hosts if host is not net.root
                ],
            }
