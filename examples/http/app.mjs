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

import { existsSync } from "node:fs";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

const MAINTENANCE = "maintenance"; // While this file is there, the app does nothing.

// What was done under each key. Here it is gone with the process: a real app keeps it in its database, written in one
// transaction with the charge, as app.py does.
const charges = new Map();

// Charges, unless that was done under this key. A second request that comes while the first is under way (a worker that
// lost its lease, or its patience) waits for the first one's end instead of charging beside it.
function charge(key, payment) {
  if (charges.has(key)) {
    console.log("charged before", key);
  } else {
    const charging = bank(payment).then(() => console.log("charged", key, payment.cents));
    charges.set(key, charging);
    charging.catch(() => charges.delete(key)); // It failed, so the next attempt may try again.
  }
  return charges.get(key);
}

// Hand the key on, where what you call takes one.
async function bank() {
  await sleep(20);
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
  response.writeHead(status, { "Content-Type": "text/plain", ...headers }).end(said + "\n");
});

// Node's 5 seconds are well above the worker's one, so that no connection is used as it closes. Behind a load balancer it
// would have to be longer than the balancer's own.
server.keepAliveTimeout = 5000;

const port = Number(process.argv[2]);
server.listen(port, "127.0.0.1", () => console.log(`listening on ${port}`));

// Stop the worker first: what it has sent is then answered, and nothing more comes. The process ends with the last request.
process.on("SIGTERM", () => {
  server.close();
  server.closeIdleConnections?.();
});
