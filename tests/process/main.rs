//! The real `leasehold run`, as a process: signals, exit codes, exec handlers, and what happens when it is killed. SQS and
//! DynamoDB are the embedded engine, in this process.
#![cfg(all(unix, feature = "demo"))]
#![expect(clippy::expect_used, reason = "helpers of tests, which clippy takes for production code here")]

mod bench;
mod cases;
mod crash;
mod demo;
mod freeze;
mod kill;
mod moments;
mod outage;
mod proxy;
mod run;
mod start;
mod stop;
mod sweep;
mod worker;
