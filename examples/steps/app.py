#!/usr/bin/env python3
"""An app for `leasehold run` with steps: charges an order, then mails a receipt. Killed in between, it goes on after the
charge.

    examples/steps/app.py 8080 &
    export LEASEHOLD_QUEUES=orders
    export LEASEHOLD_ORDERS_KEY=/order_id
    export LEASEHOLD_ORDERS_HANDLER=http://127.0.0.1:8080/orders
    leasehold run

The body of a message is {"order_id": "o-1", "cents": 1200}. How an app listens, and stops without losing requests, is in
../http/app.py.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import leasehold
import shop


class App(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5  # Seconds, of idle connections.

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            order = json.loads(body)
        except ValueError:
            order = None
        if not shop.is_order(order):
            return self.reply(422, "not an order")  # Failed for good.
        try:
            shop.handle(order, leasehold.Job.of_request(self.headers))
        except leasehold.Stopped as stopped:
            # What follows is known to Leasehold: dead-lettered, or again without using an attempt.
            return self.reply(500, str(stopped))
        except Exception as error:
            return self.reply(500, repr(error))  # A failed attempt: the next goes on after the last recorded step.
        return self.reply(200, "done")

    def reply(self, status, text):
        body = (text + "\n").encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    port = int(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", port), App)
    print(f"listening on {port}", flush=True)
    server.serve_forever()
