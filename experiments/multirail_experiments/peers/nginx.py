"""nginx, the server of the programs that copy by HTTP; it is no line of its own."""

import contextlib

from multirail_experiments.peers.common import command
from multirail_experiments.peers.common import missing as absent

PORT = 7823


def missing():
    return absent("nginx")


@contextlib.contextmanager
def serving(lab, source, port):
    folder = lab.work / f"nginx-{port}"
    folder.mkdir()
    settings = folder / "nginx.conf"
    settings.write_text(f"""
daemon off; worker_processes 2; user root; pid {folder}/pid; error_log /dev/null crit;
events {{ worker_connections 1024; }}
http {{
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{ listen 0.0.0.0:{port}; root {source.root}; }}
}}
""")
    with lab.start("b", command("nginx"), "-c", settings, ready=lab.listens("b", port)):
        yield
