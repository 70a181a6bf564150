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
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DATABASE = os.environ.get("DATABASE", "charges.db")
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
    timeout = 5  # Closes idle connections. The worker closes its own after one second, so that none is used as it closes.

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if os.path.exists(MAINTENANCE):
            # Not there: uses no attempt, and the whole queue waits.
            return self.reply(503, "maintenance", {"Retry-After": "30"})
        try:
            payment = json.loads(body)
            payment = {"payment_id": str(payment["payment_id"]), "cents": int(payment["cents"])}
        except (ValueError, KeyError, TypeError) as error:
            # Will never be a payment: dead-lettered, under this reason.
            return self.reply(422, f"not a payment: {error!r}", {"X-Leasehold-Reason": "not_a_payment"})
        try:
            # The same on every attempt. Without it (GUARD=none), the payment's own id would have to do.
            charge(self.headers.get("Idempotency-Key") or payment["payment_id"], payment)
        except sqlite3.Error as error:
            return self.reply(500, str(error))  # A failed attempt: again after the back-off.
        return self.reply(200, "charged")

    def reply(self, status, text, headers=None):
        body = (text + "\n").encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass  # One line for each charge is enough.


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # At least the queue's CONCURRENCY: the default is 5.
    daemon_threads = False  # At the end, requests under way are waited for.


def main(port):
    with sqlite3.connect(DATABASE) as database:
        database.execute("CREATE TABLE IF NOT EXISTS charges (key TEXT PRIMARY KEY, payment_id TEXT, cents INTEGER)")
    server = Server(("127.0.0.1", port), App)
    # Stop the worker first: what it has sent is then answered, and nothing more comes.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print(f"listening on {port}", flush=True)
    server.serve_forever()
    server.server_close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
