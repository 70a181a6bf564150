// Workers as they may be, in the words of `/status`: idle, busy, in an outage, in a drain, and with text that means harm.

const NOW = Date.UTC(2026, 10, 30, 3, 12, 40);

const NO_BEATS = { renewed: 0, transient: 0, lost: 0, final: 0 };
const NO_OUTCOMES = {
  done: 0,
  suppressed: 0,
  dead_lettered: 0,
  dropped: 0,
  failed: 0,
  not_yet: 0,
  unavailable: 0,
  interrupted: 0,
  held: 0,
  no_verdict: 0,
  body_away: 0,
  kept: 0,
  left: 0,
};

export function queue(of = {}) {
  return {
    guard: "claim",
    guard_outage: "pause",
    fifo: false,
    slots: 20,
    free_slots: 20,
    in_hand: 0,
    stuck: 0,
    visibility_timeout: 30,
    handler_p50_ms: null,
    handler_p99_ms: null,
    oldest_ms: null,
    depth: { visible: 0, in_flight: 0, delayed: 0 },
    polled_ms_ago: 4200,
    polls_come_back: true,
    pauses: [],
    trials: [],
    unguarded: null,
    received: 0,
    started: 0,
    takeovers: 0,
    leases_lost: { delivery: 0, execution: 0 },
    late_beats: 0,
    failed_by_code: {},
    dead_by_code: {},
    running: [],
    running_total: 0,
    failures: [],
    ...of,
    outcomes: { ...NO_OUTCOMES, ...of.outcomes },
    beats: { delivery: NO_BEATS, execution: NO_BEATS, ...of.beats },
  };
}

export function status(queues, of = {}) {
  return {
    ready: true,
    live: true,
    phase: "running",
    problems: [],
    worker: "4711-ab12cd",
    version: "0.1.0",
    now: NOW,
    up_ms: 5_220_000,
    drain_left_ms: null,
    stalled_ms: null,
    circuits: [],
    calls: {},
    write_units: 0,
    calls_per_message: null,
    write_units_per_message: null,
    queues,
    ...of,
  };
}

export function job(of = {}) {
  return {
    key: "payments#pay-000001",
    message_id: "5d1c2f0e-1",
    attempt: 1,
    undo: false,
    age_ms: 1200,
    lease_left_ms: 24_000,
    lease_ms: 30_000,
    past_p99: false,
    step: null,
    ...of,
  };
}

export function failure(of = {}) {
  return {
    at: NOW - 20_000,
    key: "payments#pay-000007",
    message_id: "5d1c2f0e-7",
    attempt: 2,
    code: "mail_busy",
    error: "the mail server is busy",
    permanent: false,
    follows: "again in 12 s",
    ...of,
  };
}

export const later = (of, ms) => ({ ...of, now: of.now + ms, up_ms: of.up_ms + ms });

// Numbers that look drawn at random and are the same in every run.
function chance(seed) {
  let state = seed;
  return () => (state = (state * 16_807) % 2_147_483_647) / 2_147_483_647;
}

// A quarter of an hour of a queue: so many done in five seconds, about; the share of them that fails; handlers, p99.
function quarter({
  seed,
  done,
  failed = 0,
  dead = 0,
  suppressed = 0,
  flight,
  p99,
  visibility,
  until = 180,
  of = () => 1,
}) {
  const random = chance(seed);
  return Array.from({ length: 180 }, (_, index) => {
    const [swell, on] = [(0.75 + 0.25 * Math.sin(index / 17 + seed)) * of(index), index < until ? 1 : 0];
    const some = (n) => Math.round(n * swell * on * (0.8 + 0.4 * random()));
    const seldom = (n) => (random() < n * on ? 1 + Math.round(random() * 2) : 0);
    return {
      at: NOW - (179 - index) * 5000,
      done: some(done),
      failed: seldom(failed),
      suppressed: some(suppressed),
      dead: seldom(dead),
      in_flight: some(flight),
      p99_ms: Math.round(p99 * (0.9 + 0.2 * random())),
      visibility_timeout: visibility,
    };
  });
}

export const history = (queues) => ({ step_ms: 5000, queues });

export function idle() {
  const queues = { payments: queue({ handler_p50_ms: null }) };
  return {
    history: history({
      payments: quarter({ seed: 3, done: 0, flight: 0, p99: 0, visibility: 30 }).map((one) => ({
        ...one,
        p99_ms: null,
      })),
    }),
    status: status(queues, { calls: { "sqs:ReceiveMessage": 522, "dynamodb:GetItem": 1044 } }),
  };
}

// Ages of what runs, oldest first.
const runs = (name, ages, lease, of = () => ({})) =>
  ages.map((age_ms, index) =>
    job({
      key: `${name}#${name.slice(0, 3)}-${String(81_204 + index * 7).padStart(6, "0")}`,
      message_id: `${name}-${index}`,
      age_ms,
      lease_ms: lease,
      lease_left_ms: lease - (age_ms % (lease / 2)),
      ...of(index),
    }),
  );

const STEPS = ["charge", "receipt", null, "charge", null];

export function busy() {
  const payments = queue({
    slots: 40,
    free_slots: 28,
    in_hand: 14,
    handler_p50_ms: 420,
    handler_p99_ms: 2900,
    oldest_ms: 1900,
    depth: { visible: 37, in_flight: 14, delayed: 3 },
    polled_ms_ago: 180,
    received: 64_031,
    started: 52_107,
    outcomes: { done: 51_840, suppressed: 11_872, failed: 203, dead_lettered: 26, held: 76 },
    takeovers: 4,
    beats: { delivery: { ...NO_BEATS, renewed: 318, transient: 2 }, execution: { ...NO_BEATS, renewed: 311 } },
    late_beats: 0,
    failed_by_code: { mail_busy: 203, account_closed: 19, timed_out: 2 },
    dead_by_code: { account_closed: 19, malformed: 7 },
    running: runs("payments", [9140, 3312, 1208, 911, 640, 512, 433, 380, 211, 160, 72, 18], 30_000, (index) => ({
      past_p99: index < 2,
      step: STEPS[index % 5],
      attempt: index === 1 ? 2 : 1,
    })),
    running_total: 12,
    failures: [
      failure({ at: NOW - 6000, key: "payments#pay-081177", code: "mail_busy" }),
      failure({
        at: NOW - 41_000,
        key: "payments#pay-080931",
        message_id: "b",
        attempt: 1,
        code: "account_closed",
        error: "the bank refuses it: the account is closed",
        permanent: true,
        follows: "dead-lettered",
      }),
      failure({
        at: NOW - 190_000,
        key: "payments#pay-080012",
        message_id: "c",
        attempt: 1,
        code: "mail_busy",
        follows: "again in 9 s",
      }),
    ],
  });
  const receipts = queue({
    slots: 20,
    free_slots: 17,
    in_hand: 3,
    handler_p50_ms: 88,
    handler_p99_ms: 640,
    oldest_ms: 310,
    depth: { visible: 4, in_flight: 3, delayed: 0 },
    polled_ms_ago: 900,
    received: 22_100,
    started: 21_950,
    outcomes: { done: 21_940, suppressed: 157 },
    running: runs("receipts", [210, 95, 31], 30_000),
    running_total: 3,
  });
  const transfers = queue({
    fifo: true,
    slots: 10,
    free_slots: 6,
    in_hand: 9,
    handler_p50_ms: 1400,
    handler_p99_ms: 21_300,
    oldest_ms: 8200,
    visibility_timeout: 90,
    depth: { visible: 12, in_flight: 9, delayed: 0 },
    polled_ms_ago: 2400,
    received: 4031,
    started: 4020,
    outcomes: { done: 4001, failed: 12, suppressed: 9 },
    beats: { delivery: { ...NO_BEATS, renewed: 40 }, execution: { ...NO_BEATS, renewed: 39 } },
    failed_by_code: { timed_out: 12 },
    running: runs("transfers", [44_020, 12_400, 8100, 1900], 90_000, (index) => ({
      past_p99: index === 0,
      step: index === 0 ? "book" : null,
    })),
    running_total: 4,
    failures: [
      failure({
        at: NOW - 700_000,
        key: "transfers#acct-7#n:1182",
        message_id: "l",
        attempt: 1,
        code: "timed_out",
        error: "the handler ran past its time budget (HANDLER_TIMEOUT)",
        follows: "again in 14 s",
      }),
    ],
  });
  return {
    history: history({
      receipts: quarter({ seed: 11, done: 70, suppressed: 1, flight: 4, p99: 640, visibility: 30 }),
      transfers: quarter({
        seed: 5,
        done: 11,
        failed: 0.02,
        flight: 6,
        p99: 21_000,
        visibility: 90,
        of: (index) => (index > 70 && index < 110 ? 1.5 : 0.7),
      }),
      payments: quarter({
        seed: 7,
        done: 140,
        failed: 0.12,
        dead: 0.03,
        suppressed: 30,
        flight: 18,
        p99: 2800,
        visibility: 30,
      }),
    }),
    status: status(
      { payments, receipts, transfers },
      {
        calls: {
          "dynamodb:PutItem": 78_004,
          "dynamodb:UpdateItem": 182_320,
          "sqs:ReceiveMessage": 18_990,
          "sqs:DeleteMessageBatch": 12_310,
          "sqs:ChangeMessageVisibilityBatch": 611,
        },
        write_units: 260_324,
        calls_per_message: 3.27,
        write_units_per_message: 2.91,
      },
    ),
  };
}

const AWAY = {
  what: "the guard's table",
  cause:
    "access denied: User: arn:aws:sts::123456789012:assumed-role/worker/i-0abc is not authorized to perform: dynamodb:UpdateItem",
  ends: "a probe in 4 s; a probe that passes ends this, tried again at least every 30 s",
};

export function outage() {
  const { status: was, history: told } = busy();
  const paused = (of) => ({
    ...of,
    pauses: [AWAY],
    free_slots: of.slots - 2,
    running: of.running.slice(0, 2),
    running_total: 2,
    in_hand: 2,
    oldest_ms: null,
  });
  const queues = Object.fromEntries(Object.entries(was.queues).map(([name, of]) => [name, paused(of)]));
  queues.receipts.pauses = [
    ...queues.receipts.pauses,
    {
      what: "intake of receipts",
      cause: "paused by ada@ops since 2026-11-30T02:58:11Z: the provider throttles us, OPS-1234",
      ends: "`leasehold resume` ends this",
    },
  ];
  queues.payments.stuck = 1;
  const since = told.queues.payments[165].at;
  const cut = Object.entries(told.queues).map(([name, samples]) => [
    name,
    samples.map((one) => (one.at < since ? one : { ...one, done: 0, failed: 0, suppressed: 0, dead: 0, in_flight: 2 })),
  ]);
  return {
    history: history(Object.fromEntries(cut)),
    status: { ...was, ready: false, queues, stalled_ms: 4100, circuits: [{ ...AWAY, state: "open" }] },
  };
}

export function drain() {
  const { status: was, history: told } = busy();
  const left = (of) => ({
    ...of,
    free_slots: of.slots - 1,
    running: of.running.slice(0, 1),
    running_total: 1,
    in_hand: 1,
  });
  const queues = Object.fromEntries(Object.entries(was.queues).map(([name, of]) => [name, left(of)]));
  return { history: told, status: { ...was, ready: false, phase: "draining", drain_left_ms: 12_300, queues } };
}

export const HARM = "<img src=x onerror=harmed()><script>harmed()</script>\"'`${harmed()}";
export const TURNED = "pay\u202e3-gnorw\u202c-\u200b\u200dzero\u2066";

// A name that nobody may choose, keys, codes and errors as a sender or a handler may write them.
export function hostile() {
  const name = `${HARM} ${"q".repeat(200)}`;
  const long = "k".repeat(1000);
  const keys = [`p#${HARM}`, `p#${TURNED}`, `p#${long}`, "p#a'b\n$(reboot)\u001b[2J", "p#\u0000", "p#مفتاح-٣", null];
  const of = queue({
    slots: 20,
    free_slots: 13,
    in_hand: 7,
    handler_p50_ms: 10,
    handler_p99_ms: 20,
    oldest_ms: 9,
    pauses: [{ what: HARM, cause: `${HARM}\u202e${long}`, ends: HARM }],
    running: keys.map((key, index) => job({ key, message_id: `${HARM}${index}`, step: index % 2 ? HARM : long })),
    running_total: 7,
    failures: keys.map((key, index) =>
      failure({
        key,
        message_id: `${index}`,
        code: index === 0 ? HARM : TURNED,
        error: `${HARM}\n${long}\u202e`,
        follows: index % 2 ? "dead-lettered" : HARM,
        permanent: true,
      }),
    ),
    dead_by_code: { [HARM]: 2, [TURNED]: 1, [long]: 1, __proto__: null, constructor: 1, toString: 3 },
    failed_by_code: { [HARM]: 4 },
    outcomes: { dead_lettered: 4 },
  });
  return {
    history: history({ [name]: [], __proto__: null }),
    status: status(
      { [name]: of },
      { ready: false, problems: [HARM + long], worker: HARM, version: TURNED, calls: { [HARM]: 1 } },
    ),
  };
}
