"""What app.py and job.py do with an order: they charge it, then mail a receipt, each in a step. Files stand for the bank and
the mail server."""

import os


def write(file, line):
    with open(file, "a") as opened:
        opened.write(line + "\n")


def charge(order, key):
    write("charges.txt", f"{key} {order['cents']}")
    return {"charge_id": f"ch_{order['order_id']}"}


def mail(order, charge, key):
    print(f"mailing {order['order_id']}, as process {os.getpid()}", flush=True)
    write("mails.txt", f"{key} {charge['charge_id']}")


def handle(order, job):
    charged = job.step("charge", lambda key: charge(order, key))
    # A mail server knows no keys. MAIL_ONCE=1 rather sends no receipt than two; then a person has to look, now and then.
    step = job.step_once if os.environ.get("MAIL_ONCE") == "1" else job.step
    step("mail", lambda key: mail(order, charged, key))


def is_order(order):
    return isinstance(order, dict) and isinstance(order.get("order_id"), str) and type(order.get("cents")) is int
