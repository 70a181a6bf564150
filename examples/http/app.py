#!/usr/bin/env python3
"""An app for `leasehold run`: charges payments, each once, however often it is asked.

    examples/http/app.py 8080 &
    export LEASEHOLD_QUEUES=payments
    export LEASEHOLD_PAYMENTS_KEY=/payment_id
    export LEASEHOLD_PAYMENTS_HANDLER=http://127.0.0.1:8080/charges
    leasehold run

It is sent a POST for each message. The body, {"payment_id": "p-1", "cents": 1200}, is the message's; the status of
the reply says what became of it. By hand, twice, for one charge:

    curl -i http://127.0.0.1:8080/charges -H 'Idempotency-Key: "payments#p-1"' -d '{"payment_id":"p-1","cents":1200}'
"""

import json
import os
import signal
import sqlite3
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DATABASE = os.environ.get("DATABASE", "charges.db")
KEEP_ALIVE = float(os.environ.get("KEEP_ALIVE", "5"))  # Seconds.
MAINTENANCE = "maintenance"  # While this file is there, the app does nothing.


def charge(key, payment):
    """Charges, unless that was done under this key. The charge and its key are written together or not at all, so
    that neither a crash nor a second request in between can come to a second charge."""
    database = sqlite3.connect(DATABASE, timeout=30)
    try:
        with database:  # One transaction.
            row = (key, payment["payment_id"], payment["cents"])
            made = database.execute("INSERT OR IGNORE INTO charges VALUES (?, ?, ?)", row).rowcount
        print(f"{'charged' if made else 'charged before'} {key} {payment['cents']}\n", end="", flush=True)
    finally:
        database.close()


class App(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # Keeps connections. Else each message costs one.
    disable_nagle_algorithm = True  # Else a reply can wait 40 ms for the other side's acknowledgement.
    # Closes idle connections. The worker closes its own after one second: keep it well above, so that none is used as it
    # closes.
    timeout = KEEP_ALIVE
    stopping = False

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if os.path.exists(MAINTENANCE):
            # Not there: uses no attempt, and the whole queue waits.
            return self.reply(503, "maintenance", {"Retry-After": "30"})
        try:
            payment = json.loads(body)
            if not isinstance(payment["payment_id"], str) or type(payment["cents"]) is not int:
                raise ValueError("payment_id is no text, or cents no whole number")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            # Will never be a payment: dead-lettered, under this reason.
            return self.reply(422, f"not a payment: {error!r}", {"X-Leasehold-Reason": "not_a_payment"})
        try:
            # The same on every attempt. Without it (GUARD=none), the payment's own id would have to do.
            charge(self.headers.get("Idempotency-Key") or payment["payment_id"], payment)
        except Exception as error:
            # A failed attempt: again after the back-off. Without a reply, it would not be known whether this still runs.
            return self.reply(500, repr(error))
        return self.reply(200, "charged")

    def reply(self, status, text, headers=None):
        body = (text + "\n").encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        if App.stopping:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass  # One line for each charge is enough.


class Server(ThreadingHTTPServer):
    timeout = 0.1  # How soon it sees that it has to stop.
    request_queue_size = 128  # At least the queue's CONCURRENCY: the default is 5.
    daemon_threads = False  # At the end, requests under way are waited for.


def main(port):
    with sqlite3.connect(DATABASE) as database:
        database.execute("CREATE TABLE IF NOT EXISTS charges (key TEXT PRIMARY KEY, payment_id TEXT, cents INTEGER)")
    server = Server(("127.0.0.1", port), App)
    # Closes the port first, so that the worker finds nobody there and uses no attempts. What it has sent is answered, and
    # what it sends on connections that are open: each of them ends with its next reply, or when it is idle.
    signal.signal(signal.SIGTERM, lambda *_: setattr(server, "timeout", 0))
    print(f"listening on {port}", flush=True)
    while server.timeout:
        server.handle_request()  # Not serve_forever, which drops what connects as it ends.
    server.socket.close()
    App.stopping = True
    server.server_close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
