#!/usr/bin/env python3
"""A program for `leasehold run` with steps: charges an order, then mails a receipt. Killed in between, the next attempt
goes on after the charge.

    export LEASEHOLD_QUEUES=orders
    export LEASEHOLD_ORDERS_KEY=/order_id
    export LEASEHOLD_ORDERS_HANDLER=exec:examples/steps/job.py
    leasehold run

The body of a message is {"order_id": "o-1", "cents": 1200}.
"""

import json
import sys

import leasehold
import shop

DONE, PERMANENT = 0, 65


def main():
    try:
        order = json.load(sys.stdin)
    except ValueError:
        order = None
    if not shop.is_order(order):
        print("not an order", file=sys.stderr)
        return PERMANENT
    # An exception ends the program with 1, a failed attempt. Where a step may not run, Leasehold knows what follows.
    shop.handle(order, leasehold.Job.of_environment())
    return DONE


if __name__ == "__main__":
    sys.exit(main())
