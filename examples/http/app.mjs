#!/usr/bin/env node
// An app for `leasehold run`: charges payments, each once, however often it is asked. Node 18 or later, no packages.
//
//     examples/http/app.mjs 8080 &
//     export LEASEHOLD_QUEUES=payments
//     export LEASEHOLD_PAYMENTS_KEY=/payment_id
//     export LEASEHOLD_PAYMENTS_HANDLER=http://127.0.0.1:8080/charges
//     leasehold run
//
// It is sent a POST for each message. The body, {"payment_id": "p-1", "cents": 1200}, is the message's; the status of the
// reply says what became of it. By hand, twice, for one charge:
//
//     curl -i http://127.0.0.1:8080/charges -H 'Idempotency-Key: "payments#p-1"' -d '{"payment_id":"p-1","cents":1200}'

import { existsSync, readFileSync, truncateSync } from "node:fs";
import { open } from "node:fs/promises";
import { createServer } from "node:http";
import { Server } from "node:net";
import { text } from "node:stream/consumers";

const BOOK = process.env.BOOK ?? "charges.jsonl";
const KEEP_ALIVE = Number(process.env.KEEP_ALIVE ?? 5); // Seconds.
const MAINTENANCE = "maintenance"; // While this file is there, the app does nothing.

// What was done under each key. A charge is a line of the book, with its key: written together or not at all, so that a
// crash cannot come between them. A real app has a database for that, as app.py does.
const charges = new Map();
let stopping = false;

// A line without its end was not written: the work it was for comes again.
function readBook() {
  const lines = existsSync(BOOK) ? readFileSync(BOOK) : Buffer.alloc(0);
  const whole = lines.subarray(0, lines.lastIndexOf("\n") + 1);
  if (whole.length < lines.length) truncateSync(BOOK, whole.length);
  for (const line of whole.toString().split("\n").slice(0, -1)) charges.set(JSON.parse(line).key, Promise.resolve());
}

// Charges, unless that was done under this key. A second request that comes while the first is under way (a worker that
// lost its lease, or its patience) waits for the first one's end instead of charging beside it.
function charge(key, payment) {
  if (charges.has(key)) {
    console.log("charged before", key, payment.cents);
  } else {
    const charging = write(key, payment).then(() => console.log("charged", key, payment.cents));
    charges.set(key, charging);
    // Half a line may be written, which the next start takes away.
    charging.catch((error) => {
      console.error(error);
      process.exit(1);
    });
  }
  return charges.get(key);
}

async function write(key, { payment_id, cents }) {
  await book.appendFile(JSON.stringify({ key, payment_id, cents }) + "\n");
  await book.datasync();
}

async function handle(request) {
  const body = await text(request);
  // Not there: uses no attempt, and the whole queue waits.
  if (existsSync(MAINTENANCE)) return [503, "maintenance", { "Retry-After": "30" }];
  const payment = parsed(body);
  // Will never be a payment: dead-lettered, under this reason.
  if (!payment) return [422, "not a payment", { "X-Leasehold-Reason": "not_a_payment" }];
  // The same on every attempt. Without it (GUARD=none), the payment's own id would have to do.
  await charge(request.headers["idempotency-key"] ?? payment.payment_id, payment);
  return [200, "charged"];
}

function parsed(body) {
  try {
    const payment = JSON.parse(body);
    return typeof payment?.payment_id === "string" && Number.isInteger(payment.cents) ? payment : null;
  } catch {
    return null;
  }
}

const server = createServer(async (request, response) => {
  // An error of ours is a failed attempt: again after the back-off.
  const [status, said, headers = {}] = await handle(request).catch((error) => [500, String(error)]);
  if (stopping) headers.Connection = "close";
  response.writeHead(status, { "Content-Type": "text/plain", ...headers }).end(said + "\n");
});

// The worker closes its idle connections after one second: keep it well above, so that none is used as it closes. Behind a
// load balancer it would have to be longer than the balancer's own.
server.keepAliveTimeout = KEEP_ALIVE * 1000;

readBook();
const book = await open(BOOK, "a");
const port = Number(process.argv[2]);
server.listen(port, "127.0.0.1", () => console.log(`listening on ${port}`));

// Closes the port first, so that the worker finds nobody there and uses no attempts. What it has sent is answered, and what
// it sends on connections that are open: each of them ends with its next reply, or when it is idle. server.close() would
// close idle ones at once, and what is just being sent on them would be lost.
process.on("SIGTERM", () => {
  stopping = true;
  Server.prototype.close.call(server);
});
