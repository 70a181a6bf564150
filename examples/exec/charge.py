#!/usr/bin/env python3
"""A handler for `leasehold run`: charges a payment at an HTTP API.

    export LEASEHOLD_QUEUES=payments
    export LEASEHOLD_PAYMENTS_KEY=/payment_id
    export LEASEHOLD_PAYMENTS_HANDLER='exec:examples/exec/charge.py https://bank.example/charges'
    leasehold run

It is run once for each message. The body, {"payment_id": "p-1", "cents": 1200}, is on standard input; the exit
code says what became of it, and what is written to standard error says why.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request

DONE, FAILED, PERMANENT, NOT_YET = 0, 1, 65, 75


def main(url):
    try:
        payment = json.load(sys.stdin)
        charge = {"payment": payment["payment_id"], "cents": int(payment["cents"])}
    except (ValueError, KeyError, TypeError) as error:
        return PERMANENT, f"not a payment: {error!r}"
    request = urllib.request.Request(
        url,
        data=json.dumps(charge).encode(),
        headers={
            "Content-Type": "application/json",
            # The same on every attempt: the bank makes one charge of them, even if a reply was lost.
            "Idempotency-Key": os.environ["LEASEHOLD_IDEMPOTENCY_KEY"],
        },
    )
    seconds_left = int(os.environ["LEASEHOLD_DEADLINE"]) - time.time()
    try:
        with urllib.request.urlopen(request, timeout=max(1, seconds_left)):
            return DONE, "charged"
    except urllib.error.HTTPError as error:
        if error.code in (429, 503):
            return NOT_YET, str(error)
        return (PERMANENT if 400 <= error.code < 500 else FAILED), str(error)
    except OSError as error:
        return FAILED, str(error)


if __name__ == "__main__":
    code, why = main(sys.argv[1])
    print(why, file=sys.stderr)
    sys.exit(code)
