#!/usr/bin/env node
// An app for `leasehold run` with steps: charges an order, then mails a receipt. Killed in between, it goes on after the
// charge. Node 18 or later, no packages.
//
//     examples/steps/app.mjs 8080 &
//     export LEASEHOLD_QUEUES=orders
//     export LEASEHOLD_ORDERS_KEY=/order_id
//     export LEASEHOLD_ORDERS_HANDLER=http://127.0.0.1:8080/orders
//     leasehold run
//
// The body of a message is {"order_id": "o-1", "cents": 1200}. How an app stops without losing requests is in
// ../http/app.mjs.

import { appendFile } from "node:fs/promises";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";

import { Job } from "./leasehold.mjs";

// Files stand for the bank and the mail server.
async function charge(order, key) {
  await appendFile("charges.txt", `${key} ${order.cents}\n`);
  return { charge_id: `ch_${order.order_id}` };
}

async function mail(order, charged, key) {
  console.log(`mailing ${order.order_id}, as process ${process.pid}`);
  await appendFile("mails.txt", `${key} ${charged.charge_id}\n`);
}

async function handle(order, job) {
  const charged = await job.step("charge", (key) => charge(order, key));
  // A mail server knows no keys. MAIL_ONCE=1 rather sends no receipt than two; then a person has to look, now and then.
  const send = (key) => mail(order, charged, key);
  await (process.env.MAIL_ONCE === "1" ? job.stepOnce("mail", send) : job.step("mail", send));
}

function parsed(body) {
  try {
    const order = JSON.parse(body);
    return typeof order?.order_id === "string" && Number.isInteger(order.cents) ? order : null;
  } catch {
    return null;
  }
}

const server = createServer(async (request, response) => {
  const order = parsed(await text(request));
  if (!order) return response.writeHead(422).end("not an order\n"); // Failed for good.
  try {
    await handle(order, await Job.ofRequest(request.headers));
    response.writeHead(200).end("done\n");
  } catch (error) {
    // A failed attempt: the next goes on after the last recorded step. If a step may not run, or the run was told to stop,
    // Leasehold knows what follows.
    response.writeHead(500).end(`${error}\n`);
  }
});

const port = Number(process.argv[2]);
server.listen(port, "127.0.0.1", () => console.log(`listening on ${port}`));
